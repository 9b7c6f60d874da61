"""From an RLJob to the pods it consists of: the user's template, with the agent in front. Pure."""

from __future__ import annotations

import copy
from typing import Any

from robustrl_api.job import RLJob
from robustrl_api.names import (
    ANNOTATION_KEPT_OFF,
    API_VERSION,
    CONTROL_AUDIENCE,
    KIND,
    LABEL_ATTEMPT,
    LABEL_EPOCH,
    LABEL_JOB,
    LABEL_ORIGIN_ROLE,
    LABEL_ROLE,
    Role,
)
from robustrl_api.pod_config import POD_CONFIG_ENV
from robustrl_api.pod_template import PodTemplate
from robustrl_operator.plan import CreatePod
from robustrl_operator.pods.config import Surroundings, pod_config

MEMORY_DIR = "/run/robustrl/memory"
IDENTITY_DIR = "/run/robustrl/identity"
CA_CONFIG_MAP = "robustrl-ca"
TOKEN_SECONDS = 3600
GRACE_SECONDS = 30
"""As Kubernetes' own default: pods that have nothing to hand over go at once anyway."""
NOBODYS_IMAGE = "gone-on-purpose.invalid/image"
"""Of a registry that there cannot be (RFC 2606)."""
Manifest = dict[str, Any]


def build_pod(job: RLJob, action: CreatePod, control_url: str) -> Manifest:
    """The pod's manifest, ready to be created."""
    template = template_of(job, action)
    spec: Manifest = template.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not action.pullable:
        spec["containers"][0]["image"] = NOBODYS_IMAGE
    if action.role is not Role.SERVICE:
        _supervise(spec, job, action.role, control_url)
    spec.setdefault("enableServiceLinks", False)
    spec["automountServiceAccountToken"] = False
    spec["restartPolicy"] = "Always"
    if action.role is Role.MANAGER:
        _keep_apart(spec, job.metadata.name)
    if action.avoid_nodes:
        _avoid(spec, action.avoid_nodes)
    if action.suspect_nodes:
        _shun(spec, action.suspect_nodes)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(job, action, template), "spec": spec}


def template_of(job: RLJob, action: CreatePod) -> PodTemplate:
    """The template for a role. Rollouts without one use the trainer's, which makes them its standby."""
    if action.role is Role.TRAINER:
        return job.spec.trainer.template
    if action.role is Role.ROLLOUT:
        return job.spec.rollout.template or job.spec.trainer.template
    if action.role is Role.MANAGER:
        return job.spec.manager.template
    return next(service.template for service in job.spec.services if service.name == action.service)


def _metadata(job: RLJob, action: CreatePod, template: PodTemplate) -> Manifest:
    ours = {
        LABEL_JOB: job.metadata.name,
        LABEL_ORIGIN_ROLE: action.role.value,
        LABEL_ROLE: action.role.value,
        LABEL_EPOCH: "none",
        LABEL_ATTEMPT: str(job.status.attempt),
        "app.kubernetes.io/name": "robustrl",
        "app.kubernetes.io/instance": job.metadata.name,
        "app.kubernetes.io/component": action.role.value,
        "app.kubernetes.io/managed-by": "robustrl-operator",
    }
    kept_off = {ANNOTATION_KEPT_OFF: ",".join(action.avoid_nodes)} if action.avoid_nodes else {}
    return {
        "name": action.name,
        "namespace": job.metadata.namespace,
        "labels": {**template.metadata.labels, **ours},
        "annotations": {**template.metadata.annotations, **kept_off},
        "ownerReferences": [
            {"apiVersion": API_VERSION, "kind": KIND, "name": job.metadata.name, "uid": job.metadata.uid,
             "controller": True, "blockOwnerDeletion": True}
        ],
    }  # fmt: skip


def _supervise(spec: Manifest, job: RLJob, role: Role, control_url: str) -> None:
    """Put the agent in front of the first container's command, and give it its memory and its identity."""
    container = spec["containers"][0]
    around = Surroundings(
        control_url=control_url,
        memory_dir=MEMORY_DIR,
        ca_file=f"{IDENTITY_DIR}/ca.crt",
        token_file=f"{IDENTITY_DIR}/token",
        weight_port=job.spec.weight_sync.port,
        grace_seconds=spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS),
    )
    container["command"], container["args"] = ["robustrl-agent", "run"], []
    container["env"] = [
        *container.get("env", []),
        {"name": POD_CONFIG_ENV, "value": pod_config(job, role, around).model_dump_json()},
        {"name": "ROBUSTRL_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ROBUSTRL_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    container["volumeMounts"] = [
        *container.get("volumeMounts", []),
        {"name": "robustrl-memory", "mountPath": MEMORY_DIR},
        {"name": "robustrl-identity", "mountPath": IDENTITY_DIR, "readOnly": True},
    ]
    size = f"{job.spec.checkpoint.memory_mebibytes}Mi"
    spec["volumes"] = [
        *copy.deepcopy(spec.get("volumes", [])),
        {"name": "robustrl-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        {"name": "robustrl-identity", "projected": {"sources": _identity()}},
    ]


def _identity() -> list[Manifest]:
    """The pod's only credential: a token for the control endpoint, good for nothing at the API server."""
    token = {"audience": CONTROL_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return [{"serviceAccountToken": token}, {"configMap": {"name": CA_CONFIG_MAP}}]


def _keep_apart(spec: Manifest, job: str) -> None:
    """Managers keep away from the machines of trainers and rollouts, so that these do not take them along."""
    others = {
        "matchLabels": {LABEL_JOB: job},
        "matchExpressions": [
            {"key": LABEL_ORIGIN_ROLE, "operator": "In", "values": [Role.TRAINER.value, Role.ROLLOUT.value]}
        ],
    }
    term = {"weight": 100, "podAffinityTerm": {"labelSelector": others, "topologyKey": "kubernetes.io/hostname"}}
    affinity = spec.setdefault("affinity", {}).setdefault("podAntiAffinity", {})
    affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(term)


def _shun(spec: Manifest, nodes: tuple[str, ...]) -> None:
    """Rather not on nodes with repeated faults; a job that has nowhere else to go goes on there."""
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    term = {"weight": 100, "preference": {"matchFields": fields}}
    affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(term)


def _avoid(spec: Manifest, nodes: tuple[str, ...]) -> None:
    """Keep a replacement off the nodes that were just lost, in each of the alternatives that the user allows."""
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.setdefault("nodeSelectorTerms", [{}]):
        fields = term.setdefault("matchFields", [])
        fields += [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
