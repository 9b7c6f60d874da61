"""RLJob.status: what the operator has decided and seen. Everything a successor operator needs is in here."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from robustrl_api.base import DocumentedModel


class ConditionType(StrEnum):
    READY = "Ready"
    PROGRESSING = "Progressing"
    RECOVERING = "Recovering"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Scope(StrEnum):
    """How much a recovery restarts."""

    PROCESS = "Process"
    POD = "Pod"
    NODE = "Node"
    JOB = "Job"


class Stage(StrEnum):
    """How far a trainer's recovery has come."""

    WAITING_FOR_BACKOFF = "WaitingForBackoff"
    WAITING_FOR_POD = "WaitingForPod"
    RESTARTING = "Restarting"
    TRAINING = "Training"


class Condition(DocumentedModel):
    type: str = Field(max_length=316)
    """Name of the condition."""
    status: Truth
    """True, False or Unknown."""
    reason: str = Field(max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    """Why, in one CamelCase word."""
    message: str = Field(default="", max_length=32_768)
    """Why, for a person."""
    last_transition_time: str = Field(max_length=64, json_schema_extra={"format": "date-time"})
    """When the status last changed."""
    observed_generation: int = Field(default=0, ge=0)
    """The spec's generation that this condition speaks of."""


class RoleStatus(DocumentedModel):
    name: str = Field(max_length=63)
    """Name of the role."""
    desired: int = Field(default=0, ge=0)
    """Pods wanted."""
    ready: int = Field(default=0, ge=0)
    """Pods at work in this role."""
    standby: int = Field(default=0, ge=0)
    """Pods of this role that could take a trainer's place."""
    restarts: int = Field(default=0, ge=0)
    """Restarts in this role so far."""
    failed_starts: int = Field(default=0, ge=0)
    """How often in a row new pods were refused, or failed before they were heard of. Zero again once the role is
    complete."""
    failed_start: str = Field(default="", max_length=253)
    """Why, the last time."""
    next_start_time: str = Field(default="", max_length=64)
    """When the next pod is made, after such failures."""


class Member(DocumentedModel):
    rank: int = Field(ge=0)
    """Index of the trainer pod; its processes' ranks follow from it."""
    pod: str = Field(default="", max_length=253)
    """Pod that holds the rank in the current epoch. Empty while the place is vacant."""
    uid: str = Field(default="", max_length=64)
    """That pod's UID."""
    node: str = Field(default="", max_length=253)
    """Node it runs on."""


class Conviction(DocumentedModel):
    """A process that hangs and is to be ended by its agent."""

    uid: str = Field(max_length=64)
    """The pod's UID."""
    life: str = Field(max_length=64)
    """Which process of the pod. Another one has nothing to do with it."""


class RecoveryStatus(DocumentedModel):
    """The trainers' recovery in flight."""

    pod: str = Field(default="", max_length=253)
    """Pod that failed."""
    cause: str = Field(default="", max_length=63)
    """What failed, in one CamelCase word."""
    evidence: str = Field(default="", max_length=1024)
    """What was seen."""
    scope: Scope = Scope.PROCESS
    """How much is restarted."""
    stage: Stage = Stage.RESTARTING
    """How far it has come."""
    step: int = Field(default=0, ge=0)
    """Steps committed when the fault was found."""
    detected_time: str = Field(default="", max_length=64)
    """When the fault was found."""
    failed_restarts: int = Field(default=0, ge=0)
    """Attempts to restart in this recovery that failed before the trainers were back at work."""
    process_faults: int = Field(default=0, ge=0)
    """Faults of the training process in this recovery; those of machines do not count."""
    not_before_time: str = Field(default="", max_length=64)
    """Backoff: when the restart may begin."""
    replacement: str = Field(default="", max_length=253)
    """Pod that takes the failed one's place."""


class Incident(DocumentedModel):
    """One fault and what was done about it."""

    role: str = Field(max_length=63)
    """Role that failed."""
    pod: str = Field(max_length=253)
    """Pod that failed."""
    cause: str = Field(max_length=63)
    """What failed, in one CamelCase word."""
    evidence: str = Field(default="", max_length=1024)
    """What was seen."""
    decision: str = Field(max_length=253)
    """What was done, and by which rule."""
    scope: Scope
    """How much was restarted."""
    epoch: int = Field(ge=0)
    """The trainers' epoch after it."""
    replacement: str = Field(default="", max_length=253)
    """Pod that took the failed one's place in the trainers."""
    step: int = Field(ge=0)
    """Steps committed when the fault was found."""
    lost: str = Field(default="", max_length=253)
    """What has to be done again because of it."""
    fault_time: str = Field(default="", max_length=64)
    """When it happened, as well as is known."""
    detected_time: str = Field(max_length=64)
    """When it was found; the failed part is fenced off by the same write."""
    promoted_time: str = Field(default="", max_length=64)
    """When every trainer pod of the new epoch had taken up its place."""
    restored_time: str = Field(default="", max_length=64)
    """When the trainers had loaded the checkpoint and were at work again."""
    recovered_time: str = Field(default="", max_length=64)
    """When the next optimizer step was committed; where training never stopped, when the fault was answered."""
    reconnected_time: str = Field(default="", max_length=64)
    """When every role was complete again and every engine had weights of the current epoch."""
    injection: str = Field(default="", max_length=63)
    """The request that made this fault on purpose, where one did."""


class SuspectNode(DocumentedModel):
    """A node on which pods of this job have failed of late."""

    name: str = Field(max_length=253)
    """The node."""
    faults: int = Field(ge=1)
    """Faults on it, each no later than recovery.suspicion.forgetSeconds after the one before."""
    last_time: str = Field(max_length=64)
    """When the last of them was found."""
    lost_time: str = Field(default="", max_length=64)
    """When its machine was last taken for lost; empty if it never was."""


class InjectionStage(StrEnum):
    """How far a fault made on purpose has come."""

    REFUSED = "Refused"
    STRIKING = "Striking"
    STRUCK = "Struck"
    FAILED = "Failed"


class InjectionTarget(DocumentedModel):
    pod: str = Field(max_length=253)
    """The pod; `operator` where it is the operator that is away, for this job alone."""
    uid: str = Field(max_length=64)
    """Its UID, or `operator`. Empty for a pod that was made because of the fault."""
    deed: str = Field(max_length=63)
    """What is done to it."""
    struck_time: str = Field(default="", max_length=64)
    """When that was seen to be done."""


class InjectionStatus(DocumentedModel):
    """The last fault that was asked for on purpose. It is carried out once, whoever the operator is by then."""

    id: str = Field(max_length=63)
    """Which request it was."""
    kind: str = Field(default="", max_length=63)
    """The kind of fault."""
    target: str = Field(default="", max_length=253)
    """What was to be struck, as it was asked for."""
    role: str = Field(default="", max_length=63)
    """The role that is struck."""
    stage: InjectionStage
    """Refused, Striking, Struck or Failed."""
    message: str = Field(default="", max_length=1024)
    """Why it was refused or failed."""
    targets: tuple[InjectionTarget, ...] = Field(default=(), max_length=1000)
    """The pods that are struck."""
    accepted_time: str = Field(default="", max_length=64)
    """When the operator took it up or refused it."""
    struck_time: str = Field(default="", max_length=64)
    """When the last of them was struck."""


def struck_pods(injection: InjectionStatus) -> tuple[str, ...]:
    """Who is struck, each once."""
    return tuple(dict.fromkeys(target.pod for target in injection.targets if target.uid))


class RLJobStatus(DocumentedModel):
    """What the operator has decided and seen."""

    observed_generation: int = Field(default=0, ge=0)
    """The spec's generation that this status speaks of."""
    conditions: tuple[Condition, ...] = Field(default=(), max_length=16)
    """Ready, Progressing, Recovering, Degraded, Suspended, Succeeded, Failed."""
    epoch: int = Field(default=0, ge=0)
    """Incarnations of the trainers so far. Written before anything acts on it."""
    attempt: int = Field(default=0, ge=0)
    """Restarts of the whole job so far."""
    step: int = Field(default=0, ge=0)
    """Optimizer steps committed, a few seconds old at most."""
    members: tuple[Member, ...] = Field(default=(), max_length=10_000)
    """Which pod holds which rank in the current epoch."""
    roles: tuple[RoleStatus, ...] = Field(default=(), max_length=64)
    """Pods of each role."""
    recovery: RecoveryStatus | None = None
    """The trainers' recovery in flight."""
    convictions: tuple[Conviction, ...] = Field(default=(), max_length=1000)
    """Engines and managers that hang and have not been ended yet."""
    incidents: tuple[Incident, ...] = Field(default=(), max_length=10)
    """The last ten faults, newest last."""
    injection: InjectionStatus | None = None
    """The last fault that was asked for on purpose."""
    restarts_without_progress: int = Field(default=0, ge=0)
    """Restarts in a row that made no training step."""
    unstable_restarts: int = Field(default=0, ge=0)
    """Restarts in a row after faults of the trainers' own processes, each soon after the one before. Backoff goes by
    it."""
    restarted_time: str = Field(default="", max_length=64)
    """When the trainers were last restarted."""
    base_step: int = Field(default=0, ge=0)
    """Steps committed when the job was last started, resumed or restarted as a whole."""
    suspects: tuple[SuspectNode, ...] = Field(default=(), max_length=64)
    """Nodes with faults of late. Those with many are avoided."""
    serial: int = Field(default=0, ge=0)
    """Pods created so far; the next one's name ends in it."""
    started_time: str = Field(default="", max_length=64)
    """When the job was first seen."""
    finished_time: str = Field(default="", max_length=64)
    """When the job succeeded or failed."""
    rollout_replicas: int = Field(default=0, ge=0)
    """Rollout pods there are, for /scale."""
    rollout_selector: str = Field(default="", max_length=1024)
    """Selector of the rollout pods, for /scale."""


def has_ended(status: RLJobStatus) -> bool:
    """Whether the job has succeeded or failed. It never un-ends."""
    return holds(status, ConditionType.SUCCEEDED) or holds(status, ConditionType.FAILED)


def holds(status: RLJobStatus, kind: ConditionType) -> bool:
    """Whether a condition is True."""
    return any(c.type == kind and c.status is Truth.TRUE for c in status.conditions)
