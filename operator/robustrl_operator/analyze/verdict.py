"""A verdict: how a pod is, why, and what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from robustrl_api.status import Scope
from robustrl_operator.view import JobView, PodView


class Health(StrEnum):
    STARTING = "Starting"
    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    """Something is odd, and what it means is not known yet."""
    FAILED = "Failed"
    LEAVING = "Leaving"
    """It works, and will soon be gone."""
    HANDED_OVER = "HandedOver"
    """A trainer that ended after a commit, so that others go on from it."""
    FINISHED = "Finished"


class Cause(StrEnum):
    """What failed. The vocabulary of incidents and Events."""

    NONE = "None"
    WORKER_EXITED = "WorkerExited"
    AGENT_RESTARTED = "AgentRestarted"
    ENGINE_EXITED = "EngineExited"
    MANAGER_EXITED = "ManagerExited"
    PEER_LOST = "PeerLost"
    WORKER_HUNG = "WorkerHung"
    ENGINE_HUNG = "EngineHung"
    MANAGER_HUNG = "ManagerHung"
    PHASE_OVERDUE = "PhaseOverdue"
    POD_DELETED = "PodDeleted"
    POD_FAILED = "PodFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    GPU_FAILED = "GpuFailed"
    EVICTED = "Evicted"
    POD_LEAVING = "PodLeaving"
    NODE_LOST = "NodeLost"
    HEARTBEAT_LOST = "HeartbeatLost"
    NEVER_STARTED = "NeverStarted"
    BAD_IMAGE = "BadImage"
    BAD_CONFIGURATION = "BadConfiguration"


UNMENDABLE = frozenset({Cause.BAD_IMAGE, Cause.BAD_CONFIGURATION})
"""Causes that lie in what the user gave us: a restart meets them again."""


class Question(StrEnum):
    """What a pod under suspicion is asked."""

    NONE = "None"
    LIVES = "Lives"
    """The agent: whether it is there."""
    WORKS = "Works"
    """The role's process: to show that it works."""


@dataclass(frozen=True, slots=True)
class Verdict:
    health: Health
    cause: Cause = Cause.NONE
    evidence: str = ""
    scope: Scope = Scope.PROCESS
    """What is broken: only the process, the pod, or its node."""
    ask: Question = Question.NONE
    since: datetime | None = None
    """When it began, where that is earlier than its being found."""

    @property
    def failed(self) -> bool:
        return self.health is Health.FAILED

    @property
    def pod_lost(self) -> bool:
        """Whether nothing in this pod will ever act again."""
        return self.failed and self.scope in (Scope.POD, Scope.NODE)

    @property
    def node_lost(self) -> bool:
        """Whether the pod's node will not even finish its deletion."""
        return self.failed and self.scope is Scope.NODE


HEALTHY = Verdict(Health.HEALTHY)

Detector = Callable[[JobView, PodView], Verdict | None]
"""A detector of a user's own, registered as an entry point: pure, and quick, for it is asked twice a heartbeat."""

Verdicts = dict[str, Verdict]
"""Verdicts by pod UID. Members of the epoch whose pod no longer exists have one too."""
