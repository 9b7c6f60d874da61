"""What the brain sees of a job: one immutable snapshot, the same from every body."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from robustrl_api.control import AgentReport, Struck
from robustrl_api.names import Role
from robustrl_api.node import PodReading
from robustrl_api.spec import RLJobSpec
from robustrl_api.status import ConditionType, Member, RLJobStatus, holds
from robustrl_operator.faults.kind import Means


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of the job as its body's source of truth has it."""

    name: str
    uid: str
    origin: Role
    role: Role
    """The role label; it may lag behind status, which decides."""
    created: datetime
    epoch: int = -1
    attempt: int = 0
    node: str = ""
    address: str = ""
    phase: str = "Pending"
    """Kubernetes pod phase: Pending, Running, Succeeded, Failed."""
    reason: str = ""
    """The pod's own reason when it failed, such as Evicted or OOMKilled."""
    waiting: str = ""
    """Why a container of it does not start, such as ErrImagePull."""
    message: str = ""
    container_changed: datetime | None = None
    """When its node last started or ended the container of the agent, by the node's clock."""
    ended: str = ""
    """Why that container ended the last time, such as OOMKilled, where it has been started again since."""
    called_back: bool = False
    """A taint of its node will end it, though it does not go yet."""
    kept_off: tuple[str, ...] = ()
    """Nodes that it may not be put on, since they were taken for lost when it was made."""
    deleting: bool = False
    ends_at: datetime | None = None
    """When a pod that is being deleted is ended by its node, ready or not."""
    struck: Struck | None = None
    """What came of the last `HarmMachine`, where its body was not allowed to carry it out."""


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    ready: bool = True
    exists: bool = True
    leaving: bool = False
    """It is about to be taken away, as a spot machine that is called back."""
    heard: datetime | None = None
    """When it last said of itself how it is, by its own clock: as it starts, and every few minutes."""
    silent_since: datetime | None = None
    """Where the operator was on it that led before and fell silent: since when that one was not heard."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The last report of an agent, when it came, and since when its child has been as it says."""

    report: AgentReport
    at: datetime
    changed: datetime
    steady_since: datetime | None = None
    """Since when its reports have come one after the other, where that is known."""
    begun: datetime | None = None
    """When the first report of this life of the agent came, where that is known."""

    @property
    def phase_since(self) -> datetime:
        """When the agent entered the phase that it reports."""
        return self.at - timedelta(seconds=self.report.activity.phase_seconds)


@dataclass(frozen=True, slots=True)
class Observed:
    """What the agent of a pod's node last said of the pod, and when."""

    reading: PodReading
    at: datetime


@dataclass(frozen=True, slots=True)
class Probe:
    """An answer, or its absence, to a question asked because of a suspicion."""

    asked: datetime
    answered: bool
    done: bool = True
    deep: bool = False
    """Whether the role's process had to show that it works, and not only the agent that it lives."""
    reached: bool = False
    """Whether at least the machine lives: it took the connection, or refused it."""


@dataclass(frozen=True)
class JobView:
    """A job at one moment. Reports, readings and probes are keyed by pod UID, so a successor pod inherits nothing."""

    name: str
    namespace: str
    spec: RLJobSpec
    status: RLJobStatus
    now: datetime
    watching_since: datetime
    """When this operator began to listen. Silence before it is no evidence."""
    inject: str = ""
    """A fault that somebody wants made on purpose, as the job's annotation has it."""
    means: frozenset[Means] = frozenset()
    """What can be done here to a pod from outside, on purpose."""
    generation: int = 1
    pods: tuple[PodView, ...] = ()
    nodes: dict[str, NodeView] = field(default_factory=dict)
    reports: dict[str, Heard] = field(default_factory=dict)
    readings: dict[str, Observed] = field(default_factory=dict)
    """By node agents, where there are any."""
    probes: dict[str, Probe] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Roles and services of which pods were not allowed to be made since the last plan, and why."""

    @cached_property
    def by_uid(self) -> dict[str, PodView]:
        return {pod.uid: pod for pod in self.pods}

    @cached_property
    def member_by_uid(self) -> dict[str, Member]:
        return {member.uid: member for member in self.status.members if member.uid}

    @property
    def heartbeat(self) -> timedelta:
        return timedelta(seconds=self.spec.detection.heartbeat_seconds)

    @property
    def silence_limit(self) -> timedelta:
        """An agent silent for longer is probed, then given up."""
        return self.heartbeat * self.spec.detection.lost_after_missed

    def node_lost(self, name: str) -> bool:
        """Whether the source of truth says that a node is gone or not ready."""
        node = self.nodes.get(name)
        return node is not None and not (node.ready and node.exists)

    def report(self, uid: str) -> AgentReport | None:
        heard = self.reports.get(uid)
        return heard.report if heard else None

    def current_role(self, pod: PodView) -> Role:
        """The role that status gives a pod, whatever its label still says."""
        if pod.uid in self.member_by_uid:
            return Role.TRAINER
        if pod.role is Role.FENCED:
            return Role.FENCED
        if pod.role is Role.TRAINER and pod.origin is Role.ROLLOUT:
            return Role.FENCED
        return pod.origin

    def committed_step(self) -> int:
        """Steps committed, as far as anybody has said."""
        return self._committed_step

    @cached_property
    def _committed_step(self) -> int:
        reported = (heard.report.step for uid, heard in self.reports.items() if uid in self.by_uid)
        return max(self.status.step, *reported, 0)

    def condition(self, kind: ConditionType) -> bool:
        return holds(self.status, kind)


def timestamp(moment: datetime) -> str:
    """RFC 3339 with microseconds, as Kubernetes' MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """The inverse of `timestamp`."""
    return datetime.fromisoformat(text)
