"""From the API server's pods and nodes to the brain's view of them. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from robustrl_api.names import ANNOTATION_KEPT_OFF, LABEL_ATTEMPT, LABEL_EPOCH, LABEL_ORIGIN_ROLE, LABEL_ROLE, Role
from robustrl_operator.view import NodeView, PodView

Object = dict[str, Any]

TERMINATION_TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "cloud.google.com/impending-node-termination",
        "karpenter.sh/disrupted",
    }
)
"""Put on a node by the cluster autoscaler, cloud providers' termination handlers and Karpenter before it goes."""


def read_pod(pod: Object, taints: Sequence[Object] = ()) -> PodView:
    """What matters of a pod on a node with these taints."""
    meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    labels = meta.get("labels") or {}
    waiting, message = _waiting(status)
    origin = _role(labels.get(LABEL_ORIGIN_ROLE), Role.SERVICE)
    return PodView(
        name=meta["name"],
        uid=meta["uid"],
        origin=origin,
        role=_role(labels.get(LABEL_ROLE), origin),
        created=read_time(meta.get("creationTimestamp")),
        epoch=_number(labels.get(LABEL_EPOCH), -1),
        attempt=_number(labels.get(LABEL_ATTEMPT), 0),
        node=spec.get("nodeName") or "",
        address=status.get("podIP") or "",
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or _terminated_reason(status),
        waiting=waiting,
        message=message or status.get("message") or "",
        container_changed=_container_changed(spec, status),
        ended=((_agent_container(spec, status).get("lastState") or {}).get("terminated") or {}).get("reason") or "",
        called_back=any(_evicts(taint, spec.get("tolerations") or ()) for taint in taints),
        kept_off=tuple(filter(None, (meta.get("annotations") or {}).get(ANNOTATION_KEPT_OFF, "").split(","))),
        deleting=meta.get("deletionTimestamp") is not None,
        ends_at=read_time(meta["deletionTimestamp"]) if meta.get("deletionTimestamp") else None,
    )


def read_node(node: Object) -> NodeView:
    """Whether a node is ready, as the control plane sees it, and when its kubelet last said so."""
    conditions = node.get("status", {}).get("conditions") or []
    said = next((c for c in conditions if c["type"] == "Ready"), {"status": "Unknown"})
    heard = read_time(said["lastHeartbeatTime"]) if said.get("lastHeartbeatTime") else None
    leaving = any(taint["key"] in TERMINATION_TAINTS for taint in taints_of(node))
    return NodeView(node["metadata"]["name"], ready=said["status"] == "True", leaving=leaving, heard=heard)


def taints_of(node: Object) -> list[Object]:
    return node.get("spec", {}).get("taints") or []


def _evicts(taint: Object, tolerations: Sequence[Object]) -> bool:
    """Whether a taint ends a pod, at once or when the time is over for which it is tolerated; nodes that are set apart
    for such pods carry taints as well, which these tolerate for ever.

    That a node is not ready or not reachable is a state it may come back from, and silence of its pods is evidence of
    another kind.
    """
    if taint.get("effect") != "NoExecute" or taint["key"].startswith("node.kubernetes.io/"):
        return False
    return not any(_tolerates(each, taint) and each.get("tolerationSeconds") is None for each in tolerations)


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Kubernetes' own rule; an absent key or effect stands for any."""
    meant = all((toleration.get(field) or taint[field]) == taint[field] for field in ("key", "effect"))
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return meant and (same or toleration.get("operator") == "Exists")


def read_time(value: str | datetime | None) -> datetime:
    """A Kubernetes time; now where there is none yet."""
    if isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value) if value else datetime.now(UTC)


def _role(text: str | None, default: Role) -> Role:
    """Who debugs a pod may have given it another label; that must not keep the job from being looked after."""
    return Role(text) if text in set(Role) else default


def _number(text: str | None, default: int) -> int:
    with contextlib.suppress(TypeError, ValueError):
        return int(text or "")
    return default


def _containers(status: Object) -> list[Object]:
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _agent_container(spec: Object, status: Object) -> Object:
    """The state of the first container, which is the agent's; empty while there is none."""
    name = spec["containers"][0]["name"] if spec.get("containers") else ""
    return next((c for c in status.get("containerStatuses") or [] if c["name"] == name), {})


def _container_changed(spec: Object, status: Object) -> datetime | None:
    """When the agent's container was started or ended last."""
    mine = _agent_container(spec, status)
    states = [*(mine.get("state") or {}).values(), *(mine.get("lastState") or {}).values()]
    times = [state.get(moment) for state in states for moment in ("startedAt", "finishedAt")]
    return max((read_time(time) for time in times if time), default=None)


def _waiting(status: Object) -> tuple[str, str]:
    """The first container that does not start, and why."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return waiting.get("reason") or "", waiting.get("message") or ""
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("reason") or "", condition.get("message") or ""
    return "", ""


def _terminated_reason(status: Object) -> str:
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            return ended.get("reason") or ""
    return ""
