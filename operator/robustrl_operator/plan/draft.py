"""The draft that rules pass along, and what a plan consists of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from robustrl_api.names import EventReason, Role
from robustrl_api.spec import RLJobSpec
from robustrl_api.status import RLJobStatus, RoleStatus, has_ended
from robustrl_operator.analyze.verdict import HEALTHY, Cause, Health, Verdict, Verdicts
from robustrl_operator.faults.kind import Means
from robustrl_operator.view import JobView, PodView


@dataclass(frozen=True, slots=True)
class CreatePod:
    name: str
    role: Role
    service: str = ""
    """Name of the service, for role service."""
    avoid_nodes: tuple[str, ...] = ()
    """Nodes known to be lost, though the scheduler may not have heard of it yet."""
    suspect_nodes: tuple[str, ...] = ()
    """Nodes to be avoided if there is room elsewhere."""
    pullable: bool = True
    """False: made on purpose with an image that nobody can pull."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    name: str
    uid: str
    force: bool
    """Without waiting for its node, which may never answer again."""


@dataclass(frozen=True, slots=True)
class Relabel:
    name: str
    uid: str
    role: Role
    epoch: int


@dataclass(frozen=True, slots=True)
class ProbePod:
    """Ask a pod directly, within a deadline.

    Attributes:
        seconds: how long the role's process may take to show that it works; None asks only whether the agent lives.
    """

    name: str
    uid: str
    address: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """The RLJob itself, whose time after its end is over."""


@dataclass(frozen=True, slots=True)
class HarmMachine:
    """A fault made on purpose from outside the pod, by other means than its deletion.

    Attributes:
        request: whose answer is noted in the pod's `struck` where it is refused.
    """

    name: str
    uid: str
    means: Means
    request: str


@dataclass(frozen=True, slots=True)
class StandAside:
    """A fault made on purpose: after this plan the operator is not there for this job, and then as if it were another
    one, which knows nothing but what is stored."""

    seconds: float


Action = CreatePod | DeletePod | Relabel | ProbePod | DeleteJob | HarmMachine | StandAside


@dataclass(frozen=True, slots=True)
class Event:
    reason: EventReason
    message: str
    warning: bool = False


class Outcome(StrEnum):
    PROGRESS = "Progress"
    COMPLETE = "Complete"
    BLOCKED = "Blocked"


@dataclass(frozen=True, slots=True)
class Plan:
    status: RLJobStatus
    actions: tuple[Action, ...]
    events: tuple[Event, ...]
    outcome: Outcome
    waiting_for: str = ""
    wake: timedelta | None = None
    """Plan again no later than this, whether or not anything is heard."""


@dataclass(frozen=True)
class Draft:
    """A plan in the making. Rules return a changed copy."""

    view: JobView
    verdicts: Verdicts
    status: RLJobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    waiting_for: str = ""
    wake: timedelta | None = None
    gone: frozenset[str] = field(default_factory=frozenset)
    """UIDs of pods that this plan deletes: later rules count without them."""

    @property
    def spec(self) -> RLJobSpec:
        return self.view.spec

    @property
    def ended(self) -> bool:
        return has_ended(self.status)

    def set(self, **changes: Any) -> Draft:
        return replace(self, status=self.status.model_copy(update=changes))

    def act(self, *actions: Action) -> Draft:
        return replace(self, actions=self.actions + actions)

    def tell(self, reason: EventReason, message: str, *, warning: bool = False) -> Draft:
        return replace(self, events=(*self.events, Event(reason, message, warning)))

    def wait(self, what: str, wake: timedelta | None = None) -> Draft:
        sooner = min(w for w in (self.wake, wake) if w is not None) if self.wake or wake else None
        return replace(self, waiting_for=self.waiting_for or what, wake=sooner)

    def delete(self, pod: PodView, *, force: bool) -> Draft:
        """Delete a pod, once: a pod that is already on its way out is only counted out."""
        draft = replace(self, gone=self.gone | {pod.uid})
        if pod.deleting and not force:
            return draft
        return draft.act(DeletePod(pod.name, pod.uid, force))

    def verdict(self, uid: str) -> Verdict:
        return self.verdicts.get(uid, HEALTHY)

    def role_status(self, name: str) -> RoleStatus:
        """What status says of a role or service; nothing yet where that is new."""
        return next((role for role in self.status.roles if role.name == name), RoleStatus(name=name))

    @cached_property
    def _member_uids(self) -> frozenset[str]:
        return frozenset(member.uid for member in self.status.members if member.uid)

    def is_member(self, uid: str) -> bool:
        return uid in self._member_uids

    def role_of(self, pod: PodView) -> Role:
        """The role that the draft's status gives a pod."""
        if self.is_member(pod.uid):
            return Role.TRAINER
        unseated = pod.uid in self.view.member_by_uid
        return Role.FENCED if unseated else self.view.current_role(pod)

    def live(self, role: Role) -> list[PodView]:
        """Pods that hold `role` and are neither failed nor on their way out, oldest first."""
        pods = [
            pod
            for pod in self.view.pods
            if pod.uid not in self.gone
            and not pod.deleting
            and self.role_of(pod) is role
            and not self.verdict(pod.uid).pod_lost
        ]
        return sorted(pods, key=lambda pod: (pod.created, pod.name))

    def is_let_go(self, pod: PodView) -> bool:
        """Whether a rollout on its way out is no loss: as many as are wanted are there without it. So it is after
        scaling down, and of one that was made anew."""
        deleted = pod.deleting and self.verdict(pod.uid).cause is Cause.POD_DELETED
        return deleted and self.role_of(pod) is Role.ROLLOUT and self._rollouts_suffice

    @cached_property
    def _rollouts_suffice(self) -> bool:
        return len(self.live(Role.ROLLOUT)) >= self.spec.rollout.replicas

    def healthy(self, role: Role) -> list[PodView]:
        return [pod for pod in self.live(role) if self.verdict(pod.uid).health is Health.HEALTHY]
