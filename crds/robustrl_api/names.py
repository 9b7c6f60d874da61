"""Names that users, other tools and stored objects rely on: group, labels, finalizers, roles, event reasons."""

from __future__ import annotations

from enum import StrEnum

GROUP = "robustrl.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "RLJob"
PLURAL = "rljobs"

CONTROLLER = f"{GROUP}/operator"
"""Value of spec.managedBy that gives a job to this operator."""

LABEL_JOB = f"{GROUP}/job"
LABEL_ORIGIN_ROLE = f"{GROUP}/origin-role"
"""The role a pod was created for. It never changes: quota and PDBs count by it."""
LABEL_ROLE = f"{GROUP}/role"
"""What the pod is now. An effect of status.members, re-derived by every reconcile."""
LABEL_EPOCH = f"{GROUP}/epoch"
LABEL_ATTEMPT = f"{GROUP}/attempt"
"""How often the whole job had been restarted when the pod was created."""

ANNOTATION_INJECT = f"{GROUP}/inject"
"""On an RLJob: a fault that shall be made on purpose, as JSON (`robustrl_api.injection.Request`)."""
ANNOTATION_KEPT_OFF = f"{GROUP}/kept-off"
"""On a pod: the nodes that the operator keeps it off, since they were lost when it was made; divided by commas."""

CONTROL_AUDIENCE = f"{GROUP}/control"
"""Audience of the projected tokens by which the control endpoint knows a pod."""


class Role(StrEnum):
    """What a pod does in a job."""

    TRAINER = "trainer"
    ROLLOUT = "rollout"
    MANAGER = "manager"
    SERVICE = "service"
    FENCED = "fenced"
    """Was something, must act no more, and is about to be deleted."""


class EventReason(StrEnum):
    """The fixed vocabulary of an RLJob's Events."""

    STARTED = "Started"
    POD_CREATED = "PodCreated"
    POD_REFUSED = "PodRefused"
    FAULT_DETECTED = "FaultDetected"
    TRAINER_RESTARTED = "TrainerRestarted"
    PROCESS_ENDED = "ProcessEnded"
    ROLLOUT_PROMOTED = "RolloutPromoted"
    JOB_RESTARTED = "JobRestarted"
    RECOVERED = "Recovered"
    FAULT_INJECTED = "FaultInjected"
    INJECTION_REFUSED = "InjectionRefused"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STATUS_REFUSED = "StatusRefused"
    INVALID = "Invalid"
    """The stored object cannot be read by this operator."""
