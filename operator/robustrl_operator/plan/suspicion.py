"""Nodes with repeated faults are suspects for a while: new pods and new trainers go elsewhere if they can. One with a
broken GPU is a suspect at once.

The idea is DLRover's per-node failure limit. A suspect is avoided, never forbidden: a job that has nowhere else to go
goes on there.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from robustrl_api.status import SuspectNode
from robustrl_operator.analyze.verdict import Cause, Verdict
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import moment, timestamp

MAX_SUSPECTS = 64
UNSEEN = timedelta(seconds=60)
"""As long as a cluster may need to see that a machine is dead (Kubernetes' node-monitor-grace-period is 50 s)."""


def note(draft: Draft, pod: str, fault: Verdict) -> Draft:
    """Count a fault of `pod` against the node it runs on."""
    return _count(draft, _node_of(draft, pod), fault)


def note_dead(draft: Draft) -> Draft:
    """Count every machine that is found dead now, where one record of a fault serves all the pods on them."""
    verdicts = ((pod.node, draft.verdict(pod.uid)) for pod in draft.view.pods)
    for node, verdict in {node: verdict for node, verdict in verdicts if verdict.node_lost}.items():
        draft = _count(draft, node, verdict)
    return draft


def _count(draft: Draft, node: str, fault: Verdict) -> Draft:
    """A machine dies once, however many pods are on it and whatever their records make of it."""
    if not node or _died_now(draft, node) or (fault.node_lost and node in lost(draft)):
        return draft
    others = tuple(s for s in draft.status.suspects if s.name != node and not _forgotten(draft, s))
    before = next((s for s in draft.status.suspects if s.name == node and not _forgotten(draft, s)), None)
    faults = before.faults + 1 if before else 1
    if fault.cause is Cause.GPU_FAILED:
        faults = max(faults, draft.spec.recovery.suspicion.faults)
    now = timestamp(draft.view.now)
    lost_time = now if fault.node_lost else before.lost_time if before else ""
    counted = SuspectNode(name=node, faults=faults, last_time=now, lost_time=lost_time)
    return draft.set(suspects=(*others, counted)[-MAX_SUSPECTS:])


def suspects(draft: Draft) -> frozenset[str]:
    """Nodes to be avoided now."""
    limit = draft.spec.recovery.suspicion.faults
    return frozenset(s.name for s in draft.status.suspects if s.faults >= limit and not _forgotten(draft, s))


def struck_lately(draft: Draft) -> frozenset[str]:
    """Nodes that had a fault a moment ago. A dead one looks free to the scheduler as soon as its pod is deleted."""
    return frozenset(s.name for s in draft.status.suspects if draft.view.now - moment(s.last_time) <= UNSEEN)


def lost(draft: Draft) -> frozenset[str]:
    """Nodes whose machines were taken for lost a moment ago and have not said anything since."""
    return frozenset(s.name for s in draft.status.suspects if s.lost_time and _is_lost(draft, s))


def _is_lost(draft: Draft, suspect: SuspectNode) -> bool:
    since = moment(suspect.lost_time)
    node = draft.view.nodes.get(suspect.name)
    says_that_it_lives = node is not None and node.heard is not None and node.heard > since
    return draft.view.now - since <= UNSEEN and not says_that_it_lives


def _died_now(draft: Draft, node: str) -> bool:
    now = timestamp(draft.view.now)
    return any(suspect.name == node and suspect.lost_time == now for suspect in draft.status.suspects)


def _node_of(draft: Draft, pod: str) -> str:
    """A member's pod may be gone from the view already; its seat remembers the node."""
    seat = next((member.node for member in draft.view.status.members if member.pod == pod), "")
    return next((each.node for each in draft.view.pods if each.name == pod), "") or seat


def _forgotten(draft: Draft, suspect: SuspectNode) -> bool:
    window = timedelta(seconds=draft.spec.recovery.suspicion.forget_seconds)
    last: datetime = moment(suspect.last_time)
    return draft.view.now - last > window
