"""What the brain's tests are made of: a job, its pods and reports, and a world in which whole recoveries are played.

`job()` is the job of most tests: 2 trainers, 4 rollouts of which 2 are never borrowed, 1 manager. `World` plays it in
virtual time with the real analyze, plan and assignments: pods start on simulated nodes, agents carry out what they
are assigned, trainers step and commit, and faults are injected by name. After each moment it checks what must always
hold, whatever the story.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from robustrl.supervisor.activity import ActivityWatch
from robustrl_api.control import (
    Activity,
    AgentReport,
    Assignment,
    Child,
    ChildState,
    Complaint,
    Exit,
    Harm,
    Strike,
    Struck,
)
from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.node import PodReading, Source, Xid, XidSeverity
from robustrl_api.spec import RLJobSpec
from robustrl_api.status import ConditionType, Incident, Member, RLJobStatus, has_ended, holds
from robustrl_operator.analyze import Verdict, Verdicts, analyze
from robustrl_operator.faults.kind import Means
from robustrl_operator.plan import Action, CreatePod, DeletePod, Event, HarmMachine, Plan, ProbePod, Relabel, plan
from robustrl_operator.plan.assign import assignments
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import Heard, JobView, NodeView, Observed, PodView, Probe

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
GRACE = timedelta(seconds=15)
TICK = timedelta(seconds=0.5)
"""A job is looked at twice a heartbeat."""


def merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`base` with `patch` over it, object by object."""
    merged = dict(base)
    for key, value in patch.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def job(**patch: Any) -> RLJobSpec:
    """The usual job, with fields (as in YAML) put over it."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["python", "train.py"]}]}}
    base: dict[str, Any] = {
        "steps": 20,
        "data": {"prompts": "tasks:prompts", "rollout": "tasks:rollout"},
        "trainer": {"replicas": 2, "template": template},
        "rollout": {"replicas": 4, "minReplicas": 2, "engine": {"model": "model:build"}},
        "manager": {"ledger": "/ledger", "template": template},
    }
    return RLJobSpec.model_validate(merge(base, patch))


SERVICE = {"name": "judge", "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}


# Single moments, for the tests of one rule.


def pod(name: str, origin: Role = Role.ROLLOUT, **fields: Any) -> PodView:
    """A running pod on a node of its own."""
    number = name.rpartition("-")[2]
    usual: dict[str, Any] = {
        "role": origin, "created": NOW - 100 * SECOND, "node": f"n{number}", "address": f"10.0.0.{number}",
        "phase": "Running",
    }  # fmt: skip
    return PodView(name=name, uid=f"uid-{name}", origin=origin, **{**usual, **fields})


def heard(
    pod: PodView, child: Child | None = None, *, ago: float = 0.1, changed: float | None = None, **fields: Any
) -> Heard:
    """What the pod's agent said `ago` seconds before NOW, its child having changed `changed` seconds before."""
    child = child or Child(state=ChildState.RUNNING, epoch=1)
    report = AgentReport(pod=pod.name, boot="b", role=pod.role, child=child, **fields)
    return Heard(report, NOW - ago * SECOND, NOW - (ago if changed is None else changed) * SECOND)


def exited(code: int = 1, *, epoch: int = 1, message: str = "", peer_lost: bool = False, restarts: int = 0) -> Child:
    last = Exit(code=code, message=message, peer_lost=peer_lost)
    return Child(state=ChildState.EXITED, epoch=epoch, last_exit=last, restarts=restarts)


def running_job(spec: RLJobSpec | None = None, **changes: Any) -> JobView:
    """The usual job in the middle of its first epoch, everybody well; `changes` are the view's fields."""
    spec = spec or job()
    trainers = [pod(f"j-trainer-{n}", Role.TRAINER, epoch=1) for n in range(1, 1 + spec.trainer.replicas)]
    rollouts = [pod(f"j-rollout-{n}", created=NOW - (200 - n) * SECOND) for n in range(3, 3 + spec.rollout.replicas)]
    pods = (pod("j-manager-0", Role.MANAGER), *trainers, *rollouts)
    members = tuple(Member(rank=r, pod=p.name, uid=p.uid, node=p.node) for r, p in enumerate(trainers))
    usual: dict[str, Any] = {
        "name": "j", "namespace": "ns", "spec": spec, "now": NOW, "watching_since": NOW - 600 * SECOND, "pods": pods,
        "status": RLJobStatus(epoch=1, step=5, members=members, serial=20, started_time="2026-11-21T08:00:00.0Z"),
        "reports": {
            p.uid: heard(
                p, step=5, admitted=p.origin is Role.ROLLOUT,
                activity=Activity(phase_seconds=600 if p.origin is Role.MANAGER else 0),
            )
            for p in pods
        },
        "nodes": {p.node: NodeView(p.node) for p in pods},
    }  # fmt: skip
    return JobView(**{**usual, **changes})


def with_status(view: JobView, **changes: Any) -> JobView:
    return replace(view, status=view.status.model_copy(update=changes))


def with_pod(view: JobView, name: str, **changes: Any) -> JobView:
    """The view with one pod changed."""
    assert any(p.name == name for p in view.pods), name
    return replace(view, pods=tuple(replace(p, **changes) if p.name == name else p for p in view.pods))


def without_pod(view: JobView, *names: str) -> JobView:
    return replace(view, pods=tuple(p for p in view.pods if p.name not in names))


def saying(view: JobView, name: str, child: Child | None = None, **fields: Any) -> JobView:
    """The view with another report of one pod."""
    (one,) = [p for p in view.pods if p.name == name]
    return replace(view, reports={**view.reports, one.uid: heard(one, child, **fields)})


def draft(view: JobView, verdicts: Verdicts | None = None) -> Draft:
    """What a rule is given. Verdicts by pod name are put over what analyze says."""
    said = analyze(view)
    for name, verdict in (verdicts or {}).items():
        said[f"uid-{name}"] = verdict
    return Draft(view, said, view.status)


def actions(of: Draft | Plan, kind: type) -> list[Any]:
    return [action for action in of.actions if isinstance(action, kind)]


def names(found: Iterable[Any]) -> list[str]:
    return [each.name for each in found]


# The world.


ENDS_WELL = (Exit(code=0), Exit(code=76, handed_over=True))


@dataclass
class SimNode:
    name: str
    gpu: bool = True
    powered: bool = True
    cut: bool = False
    bad_since: datetime | None = None

    @property
    def reachable(self) -> bool:
        return self.powered and not self.cut


@dataclass
class SimAgent:
    """A pod's agent, reduced to what it tells and what it does when told."""

    boot: int
    role: Role
    assignment: Assignment | None = None
    child: Child = field(default_factory=Child)
    child_since: datetime = NOW
    rank: int = -1
    """The rank that the child was started with."""
    started_epoch: int = 0
    step: int = 0
    complaint: Complaint | None = None
    struck: Struck | None = None
    up: bool = True
    watch: ActivityWatch | None = None
    """How its work goes on, where a story tells of that."""
    works: bool = True
    """What a deep probe finds."""


@dataclass
class SimPod:
    view: PodView
    agent: SimAgent | None = None
    deleted_at: datetime | None = None
    waiting: str = ""


@dataclass
class Operator:
    """What an operator process keeps in memory. A new one starts with nothing."""

    since: datetime
    reports: dict[str, Heard] = field(default_factory=dict)
    probes: dict[str, Probe] = field(default_factory=dict)
    down_until: datetime | None = None


class OperatorKilled(Exception):
    """The operator process ended in the middle of carrying out a plan."""


class World:
    """A cluster, a job and its operator in virtual time.

    Args:
        machines: nodes with an accelerator; each holds one trainer or rollout. There are CPU nodes beside them.
        pod_seconds: from a pod's creation to its agent's first report.
        script: given an epoch, how the training script ends by itself soon after its start, or None: it trains.
    """

    def __init__(
        self,
        spec: RLJobSpec | None = None,
        *,
        machines: int = 8,
        pod_seconds: float = 3.0,
        step_seconds: float = 1.0,
        script: Callable[[int], Exit | None] = lambda epoch: None,
    ) -> None:
        self.spec = spec or job()
        self.status = RLJobStatus()
        self.now = NOW
        self.generation = 1
        self.pods: dict[str, SimPod] = {}
        self.zombies: list[SimPod] = []
        """Containers that run on although the API server no longer knows their pod: their node is cut off."""
        machine_nodes = [SimNode(f"n{i}") for i in range(machines)]
        self.nodes = {n.name: n for n in (*machine_nodes, SimNode("cpu0", gpu=False), SimNode("cpu1", gpu=False))}
        self.operator = Operator(NOW)
        self.events: list[Event] = []
        self.acted: list[tuple[datetime, Action]] = []
        self.plans: list[Plan] = []
        self.convictions: list[tuple[datetime, Verdict]] = []
        self.ledger_epoch, self.ledger_step = 0, 0
        self.committed_epoch = 0
        """The epoch of the last step."""
        self.kill_operator_after: int | None = None
        self.inject = ""
        """The job's annotation."""
        self.strikes: list[tuple[str, Strike]] = []
        """Kill the operator after so many effects of its next plan that has any; the status write is the first."""
        self.broken_image: Callable[[CreatePod], bool] = lambda create: False
        self.script = script
        self.live: Callable[[], None] = lambda: None
        """What happens in the job by itself, each moment."""
        self.may_step: Callable[[], bool] = lambda: True
        """Whether the script is far enough to commit its step."""
        self._pod_delay, self._step = pod_seconds * SECOND, step_seconds * SECOND
        self._step_began: tuple[int, datetime] | None = None
        self._serial = itertools.count()
        self._unseated: set[str] = set()
        self._disturbed: dict[str, datetime] = {}
        self.readings: dict[str, Observed] = {}
        """By the agents of the nodes. A new operator hears of all of them in their next reports."""

    # Looking.

    def pod(self, name: str) -> SimPod:
        return next(p for p in self.pods.values() if p.view.name == name)

    def of_role(self, role: Role) -> list[str]:
        """Pods with this label, by name, that are not on their way out."""
        live = (p.view for p in self.pods.values() if not p.view.deleting)
        return sorted(v.name for v in live if v.role is role)

    def members(self) -> list[str]:
        return [member.pod for member in self.status.members]

    def holds(self, kind: ConditionType) -> bool:
        return holds(self.status, kind)

    def condition(self, kind: ConditionType) -> Any:
        return next(c for c in self.status.conditions if c.type == kind)

    def incidents(self, role: str = "trainer") -> list[Incident]:
        return [incident for incident in self.status.incidents if incident.role == role]

    def did(self, kind: type) -> list[Any]:
        return [action for _, action in self.acted if isinstance(action, kind)]

    @property
    def elapsed(self) -> float:
        return (self.now - NOW).total_seconds()

    # Time.

    def run(self, seconds: float) -> World:
        end = self.now + seconds * SECOND
        while self.now < end:
            self.tick()
        return self

    def until(self, what: Callable[[World], bool], within: float = 120.0) -> World:
        """Play until something holds; that it does within a time is part of every story."""
        end = self.now + within * SECOND
        while not what(self):
            assert self.now < end, f"not within {within:.0f} s of virtual time\n{self.report()}"
            self.tick()
        return self

    def training(self, epoch: int = 1, within: float = 120.0) -> World:
        """Play until the trainers of an epoch commit steps and no recovery is left."""
        return self.until(
            lambda w: (
                w.status.epoch >= epoch
                and w.committed_epoch >= epoch
                and w.status.recovery is None
                and w.holds(ConditionType.PROGRESSING)
                and w.status.step > 0
            ),
            within,
        )

    def ended(self, within: float = 300.0) -> World:
        return self.until(lambda w: has_ended(w.status) and not w.pods, within)

    def report(self) -> str:
        """The state, for the reader of a failed test."""
        lines = [f"t={self.elapsed} epoch={self.status.epoch} ledger={self.ledger_epoch}.{self.ledger_step}"]
        lines += [f"  recovery: {self.status.recovery}", f"  members: {self.members()}"]
        for p in self.pods.values():
            child = p.agent.child if p.agent else None
            lines.append(f"  {p.view.name} {p.view.role} {p.view.phase} on {p.view.node} del={p.view.deleting} {child}")
        lines += [f"  {when.time()} {action}" for when, action in self.acted[-12:]]
        lines += [f"  waiting for: {self.plans[-1].waiting_for}" if self.plans else ""]
        return "\n".join(lines)

    def tick(self) -> None:
        self.now += TICK
        self._move_pods()
        for p in self._containers():
            self._obey(p)
        self.live()
        self._train()
        self._deliver_reports()
        self._reconcile()
        self._check()

    # Faults and wishes.

    def exit_child(self, name: str, code: int = 1, message: str = "boom", *, peer_lost: bool = False) -> None:
        agent = self.pod(name).agent
        assert agent is not None
        if agent.child.state in (ChildState.RUNNING, ChildState.STARTING):
            restarts = agent.child.restarts + (agent.role is not Role.TRAINER)
            self._set_child(agent, ChildState.EXITED, Exit(code=code, message=message, peer_lost=peer_lost), restarts)

    def restart_agent(self, name: str) -> None:
        """The agent dies; its container is restarted in place and what is in the pod's memory stays."""
        old = self.pod(name).agent
        assert old is not None
        self.pod(name).agent = SimAgent(
            next(self._serial), self.pod(name).view.origin, started_epoch=old.started_epoch, struck=old.struck
        )

    def delete_pod(self, name: str) -> None:
        self._delete(self.pod(name), force=False)

    def fail_pod(self, name: str, reason: str) -> None:
        p = self.pod(name)
        p.view = replace(p.view, phase="Failed", reason=reason)
        p.agent = None

    def break_gpu(self, name: str, code: int = 79) -> None:
        """The driver reports an XID of the GPU that the pod holds; its process may not have noticed yet."""
        uid = self.pod(name).view.uid
        xid = Xid(code=code, gpu=f"GPU-of-{name}", severity=XidSeverity.GPU, meaning="it broke")
        self.readings[uid] = Observed(PodReading(uid=uid, source=Source.GPU, xids=(xid,)), self.now)

    def kill_node(self, name: str) -> None:
        self.nodes[name].powered = False
        self.nodes[name].bad_since = self.now
        for p in self._containers():
            if p.view.node == name:
                p.agent = None
        self.zombies = [z for z in self.zombies if z.view.node != name]

    def cut_node(self, name: str) -> None:
        self.nodes[name].cut = True
        self.nodes[name].bad_since = self.now

    def heal_node(self, name: str) -> None:
        """Plugged in again; what ran there and is no longer wanted is removed by its kubelet."""
        self.nodes[name].cut = False
        self.nodes[name].bad_since = None
        self.zombies = [z for z in self.zombies if z.view.node != name]

    def revive_node(self, name: str) -> None:
        """Booted again: the pods that are bound to it start anew, with empty memory."""
        node = self.nodes[name]
        node.powered, node.cut, node.bad_since = True, False, None
        for p in self.pods.values():
            if p.view.node == name and p.agent is None and p.view.phase == "Running":
                p.agent = SimAgent(next(self._serial), p.view.origin)

    def replace_operator(self) -> None:
        """The operator dies and another starts, knowing nothing but what is stored."""
        self.operator = Operator(self.now)

    def stop_operator(self, seconds: float) -> None:
        self.operator = Operator(self.now + seconds * SECOND, down_until=self.now + seconds * SECOND)

    def wish(self, **patch: Any) -> None:
        """The user edits the spec."""
        wire = self.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.spec = RLJobSpec.model_validate(merge(wire, patch))
        self.generation += 1

    # The cluster.

    def _containers(self) -> list[SimPod]:
        return [*self.pods.values(), *self.zombies]

    def _move_pods(self) -> None:
        for p in list(self.pods.values()):
            if p.deleted_at is not None:
                if self._node_of(p) is None or self._reachable(p):
                    if self._hands_over(p):
                        continue
                    p.agent = None
                    if self.now >= p.deleted_at:
                        del self.pods[p.view.uid]
            elif p.view.phase == "Pending":
                self._start(p)

    def _hands_over(self, p: SimPod) -> bool:
        """A trainer goes on until it has handed over, is told to stop, or its grace period ends."""
        agent = p.agent
        if agent is None or agent.role is not Role.TRAINER or self.now >= (p.view.ends_at or self.now):
            return False
        wanted = agent.assignment is not None and agent.assignment.role is Role.TRAINER and agent.assignment.run
        over = agent.child.last_exit is not None and agent.child.last_exit.handed_over
        return wanted and (over or agent.child.state in (ChildState.STARTING, ChildState.RUNNING))

    def _start(self, p: SimPod) -> None:
        if not p.view.node:
            node = self._free_node(p.view.origin)
            if node is None:
                p.view = replace(p.view, waiting="Unschedulable", message="no free machine")
                return
            p.view = replace(p.view, node=node, waiting="", message="")
        if not self._reachable(p) or self.now < p.view.created + self._pod_delay:
            return
        if p.waiting:
            p.view = replace(p.view, waiting=p.waiting, message="no such image")
            return
        address = f"10.0.0.{next(self._serial)}"
        p.view = replace(p.view, phase="Running", address=address)
        p.agent = SimAgent(next(self._serial), p.view.origin)

    def _free_node(self, origin: Role) -> str | None:
        gpu = origin in (Role.TRAINER, Role.ROLLOUT)
        taken = {p.view.node for p in self._containers()} if gpu else set()
        free = [n.name for n in self.nodes.values() if n.gpu == gpu and n.name not in taken and self._ready(n)]
        return free[0] if free else None

    def _ready(self, node: SimNode) -> bool:
        return node.bad_since is None or (node.reachable and self.now - node.bad_since < 8 * SECOND)

    def _node_of(self, p: SimPod) -> SimNode | None:
        return self.nodes.get(p.view.node)

    def _reachable(self, p: SimPod) -> bool:
        node = self._node_of(p)
        return node is not None and node.reachable

    def _delete(self, p: SimPod, *, force: bool) -> None:
        if force:
            del self.pods[p.view.uid]
            if p.agent is not None and not self._reachable(p):
                self.zombies.append(p)
            return
        if p.deleted_at is None:
            p.view = replace(p.view, deleting=True, ends_at=self.now + GRACE)
            p.deleted_at = self.now + SECOND

    # The agents.

    def _set_child(self, agent: SimAgent, state: ChildState, exit: Exit | None = None, restarts: int = 0) -> None:
        agent.child = agent.child.model_copy(update={"state": state, "last_exit": exit, "restarts": restarts})
        agent.child_since = self.now

    def _obey(self, p: SimPod) -> None:
        agent = p.agent
        if agent is None or agent.assignment is None:
            return
        wanted = agent.assignment
        if wanted.role is Role.TRAINER or agent.role is Role.TRAINER:
            self._obey_as_trainer(agent, wanted)
        elif not wanted.run or wanted.role not in (Role.ROLLOUT, Role.MANAGER):
            agent.child = Child()
        else:
            self._keep_running(agent)
        agent.role = wanted.role
        if wanted.strike is not None and (agent.struck is None or agent.struck.id != wanted.strike.id):
            self._strike(p, agent, wanted.strike)

    def _strike(self, p: SimPod, agent: SimAgent, strike: Strike) -> None:
        """The pod's memory remembers it, also for the agent that comes after this one."""
        self.strikes.append((p.view.name, strike))
        agent.struck = Struck(id=strike.id)
        if strike.harm is Harm.KILL_AGENT:
            self.restart_agent(p.view.name)
        else:
            self.exit_child(p.view.name, -9)

    def _obey_as_trainer(self, agent: SimAgent, wanted: Assignment) -> None:
        if wanted.role is not Role.TRAINER or not wanted.run:
            agent.child = Child()
            return
        if agent.role is not Role.TRAINER or agent.child.epoch != wanted.epoch:
            agent.child, agent.rank = Child(epoch=wanted.epoch), wanted.rank
            if agent.started_epoch >= wanted.epoch:
                self._set_child(agent, ChildState.EXITED, Exit(code=-9, message="the agent was restarted"))
            else:
                self._set_child(agent, ChildState.STARTING)
                agent.started_epoch = wanted.epoch
        elif agent.child.state is ChildState.STARTING and self.now - agent.child_since >= SECOND / 2:
            self._set_child(agent, ChildState.RUNNING)
        elif agent.child.state is ChildState.RUNNING and (end := self.script(wanted.epoch)) is not None:
            self._set_child(agent, ChildState.EXITED, end)

    def _keep_running(self, agent: SimAgent) -> None:
        """Engines and managers are restarted in place: at once, then with growing delays."""
        child = agent.child
        delay = child.restarts * SECOND if child.restarts > 1 else timedelta(0)
        if child.state in (ChildState.NONE, ChildState.EXITED) and self.now - agent.child_since > delay:
            self._set_child(agent, ChildState.STARTING, child.last_exit, child.restarts)
        elif child.state is ChildState.STARTING and self.now - agent.child_since >= SECOND:
            self._set_child(agent, ChildState.RUNNING, child.last_exit, child.restarts)

    # Training: all ranks of one epoch make a step together and commit it to the ledger.

    def _workers(self, epoch: int) -> dict[int, SimPod]:
        found = {}
        for p in self._containers():
            agent = p.agent
            if agent and agent.role is Role.TRAINER and agent.child.epoch == epoch:
                found[agent.rank] = p
        return found

    def _train(self) -> None:
        epochs = {p.agent.child.epoch for p in self._containers() if p.agent and p.agent.role is Role.TRAINER}
        for epoch in sorted(epochs - {0}):
            self._train_epoch(epoch, self._workers(epoch))

    def _train_epoch(self, epoch: int, workers: dict[int, SimPod]) -> None:
        running = [p for p in workers.values() if p.agent and p.agent.child.state is ChildState.RUNNING]
        self._notice_exits(workers, running)
        for p in running:
            if self.ledger_epoch > epoch and self._reachable(p) and p.agent:
                self._set_child(p.agent, ChildState.EXITED, Exit(code=1, message="Fenced"))
        together = len(running) == self.spec.trainer.replicas and all(map(self._reachable, running))
        if not together or self.ledger_epoch > epoch or not self._managers_up():
            return
        self.ledger_epoch = epoch
        if self._step_began is None or self._step_began[0] != epoch:
            self._step_began = (epoch, self.now)
        if self.now - self._step_began[1] >= self._step and self.may_step():
            self._step_began = (epoch, self.now)
            self.ledger_step = min(self.ledger_step + 1, self.spec.steps)
            self.committed_epoch = epoch
            self._hand_over(running)
        for p in running:
            assert p.agent is not None
            p.agent.step = self.ledger_step
            if self.ledger_step >= self.spec.steps:
                self._set_child(p.agent, ChildState.EXITED, Exit(code=0))

    def _hand_over(self, running: list[SimPod]) -> None:
        """After a commit the ranks ask whether one of them is wanted to leave; if so all end here."""
        agents = [p.agent for p in running if p.agent]
        if self.ledger_step < self.spec.steps and any(a.assignment and a.assignment.hand_over for a in agents):
            for agent in agents:
                self._set_child(agent, ChildState.EXITED, Exit(code=76, handed_over=True))

    def _notice_exits(self, workers: dict[int, SimPod], running: list[SimPod]) -> None:
        """A connection that closes is seen by the other ranks; a machine that goes silent is not."""
        closed = any(
            p.agent and p.agent.child.state is ChildState.EXITED and p.agent.child.last_exit not in ENDS_WELL
            for p in workers.values()
        )
        for p in running if closed else []:
            if p.agent and self._reachable(p) and self.now - p.agent.child_since >= SECOND:
                self._set_child(p.agent, ChildState.EXITED, Exit(code=75, peer_lost=True))

    def _managers_up(self) -> bool:
        managers = [p for p in self.pods.values() if p.view.origin is Role.MANAGER and p.agent and self._reachable(p)]
        return any(p.agent and p.agent.child.state is ChildState.RUNNING for p in managers)

    # The operator.

    def _deliver_reports(self) -> None:
        if self.operator.down_until is not None:
            if self.now < self.operator.down_until:
                return
            self.operator = Operator(self.now)
        for p in self.pods.values():
            if p.agent is not None and p.view.origin is not Role.SERVICE and self._reachable(p):
                self._hear(p, p.agent)
        for uid, probe in list(self.operator.probes.items()):
            if not probe.done and self.now - probe.asked >= 0.9 * SECOND:
                p = self.pods.get(uid)
                answers = p is not None and p.agent is not None and self._reachable(p)
                if probe.deep:
                    answers = answers and p is not None and p.agent is not None and p.agent.works
                self.operator.probes[uid] = replace(probe, answered=answers, done=True)

    def _hear(self, p: SimPod, agent: SimAgent) -> None:
        before = self.operator.reports.get(p.view.uid)
        manager = agent.role is Role.MANAGER
        report = AgentReport(
            pod=p.view.name,
            boot=str(agent.boot),
            role=agent.role,
            epoch=agent.assignment.epoch if agent.assignment else 0,
            step=self.ledger_step if manager else agent.step,
            admitted=agent.role is Role.ROLLOUT and agent.child.state is ChildState.RUNNING and self._managers_up(),
            child=agent.child,
            complaint=agent.complaint,
            struck=agent.struck,
            phase=agent.watch.phase if agent.watch else "",
            activity=agent.watch.report() if agent.watch else Activity(),
        )
        fresh = before is None or (before.report.boot, before.report.child) != (report.boot, report.child)
        changed = self.now if before is None or fresh else before.changed
        self.operator.reports[p.view.uid] = Heard(report, self.now, changed)

    def view(self) -> JobView:
        uids = set(self.pods) | {m.uid for m in self.status.members if m.uid}
        return JobView(
            name="j",
            namespace="ns",
            spec=self.spec,
            status=self.status,
            now=self.now,
            watching_since=self.operator.since,
            generation=self.generation,
            inject=self.inject,
            means=frozenset(Means),
            pods=tuple(sorted((p.view for p in self.pods.values()), key=lambda v: v.name)),
            nodes={n.name: NodeView(n.name, ready=self._seen_ready(n)) for n in self.nodes.values()},
            reports={uid: said for uid, said in self.operator.reports.items() if uid in uids},
            readings={uid: observed for uid, observed in self.readings.items() if uid in uids},
            probes={uid: probe for uid, probe in self.operator.probes.items() if uid in uids},
        )

    def _seen_ready(self, node: SimNode) -> bool:
        """The control plane sees after 8 s that a node is gone."""
        return node.bad_since is None or self.now - node.bad_since < 8 * SECOND

    def _reconcile(self) -> None:
        if self.operator.down_until is not None:
            return
        view = self.view()
        verdicts = analyze(view)
        self.convictions += [(self.now, verdict) for verdict in verdicts.values() if verdict.failed]
        decided = plan(view, verdicts)
        self.plans.append(decided)
        effects: list[Callable[[], None]] = []
        if decided.status != self.status:
            effects.append(lambda: self._store(decided.status))
        effects.append(self._assign)
        effects += [lambda action=action: self._carry_out(action) for action in decided.actions]  # type: ignore[misc]
        try:
            for number, effect in enumerate(effects):
                if self.kill_operator_after == number and (len(effects) > 1 or number > 0):
                    raise OperatorKilled
                effect()
            if self.kill_operator_after == len(effects) and len(effects) > 1:
                raise OperatorKilled
        except OperatorKilled:
            self.kill_operator_after = None
            self.replace_operator()
            return
        self.events += decided.events

    def _store(self, status: RLJobStatus) -> None:
        """As the API server would: JSON in, JSON out."""
        before = self.status
        wire = status.model_dump(mode="json", by_alias=True)
        stored = RLJob.model_validate({"metadata": {"name": "j"}, "spec": self.spec, "status": wire}).status
        assert stored == status, "a status must survive its way to the API server and back"
        assert stored.epoch in (before.epoch, before.epoch + 1), "the epoch rises by one for each fault"
        assert stored.serial >= before.serial, "a serial is never given twice"
        assert stored.step >= before.step, "committed steps are never taken back"
        assert {c.type for c in stored.conditions} == set(ConditionType), "every condition exists from the start"
        if has_ended(before):
            assert stored.conditions[-2:] == before.conditions[-2:] or has_ended(stored), "an end is final"
        self._check_borrowing(before, stored)
        self._unseated |= {m.uid for m in before.members if m.uid} - {m.uid for m in stored.members}
        self.status = stored

    def _assign(self) -> None:
        given = assignments(self.view())
        for uid, assignment in given.items():
            p = self.pods[uid]
            if p.agent is not None and self._reachable(p):
                p.agent.assignment = assignment

    def _carry_out(self, action: Action) -> None:
        self.acted.append((self.now, action))
        if isinstance(action, CreatePod):
            self._create(action)
        elif isinstance(action, DeletePod) and action.uid in self.pods:
            self._check_deletion(self.pods[action.uid])
            self._delete(self.pods[action.uid], force=action.force)
        elif isinstance(action, Relabel) and action.uid in self.pods:
            p = self.pods[action.uid]
            p.view = replace(p.view, role=action.role, epoch=action.epoch)
        elif isinstance(action, ProbePod):
            probe = self.operator.probes.get(action.uid)
            if probe is None or probe.done:
                deep = action.seconds is not None
                self.operator.probes[action.uid] = Probe(self.now, answered=False, done=False, deep=deep)
        elif isinstance(action, HarmMachine) and action.uid in self.pods:
            self.kill_node(self.pods[action.uid].view.node)

    def _create(self, action: CreatePod) -> None:
        if any(p.view.name == action.name for p in self.pods.values()):
            return  # the API server says 409, and that is no error
        view = PodView(
            name=action.name, uid=f"uid-{next(self._serial)}", origin=action.role, role=action.role, created=self.now,
            attempt=self.status.attempt,
        )  # fmt: skip
        self.pods[view.uid] = SimPod(view, waiting="ErrImagePull" if self.broken_image(action) else "")

    # What must hold at every moment of every story.

    def _check(self) -> None:
        held: dict[tuple[int, int], str] = {}
        for p in self._containers():
            agent = p.agent
            if agent is None or agent.role is not Role.TRAINER:
                continue
            if agent.child.state in (ChildState.STARTING, ChildState.RUNNING):
                key = (agent.child.epoch, agent.rank)
                assert key not in held, f"{held[key]} and {p.view.name} both act as rank {key[1]} of epoch {key[0]}"
                held[key] = p.view.name
        assert self.ledger_epoch <= self.status.epoch, "an epoch acted before it was in status"

    def _check_borrowing(self, before: RLJobStatus, after: RLJobStatus) -> None:
        """A rollout is borrowed only while `minReplicas` well ones remain."""
        seated = {m.uid for m in after.members if m.uid} - {m.uid for m in before.members}
        borrowed = [uid for uid in seated if uid in self.pods and self.pods[uid].view.origin is Role.ROLLOUT]
        if not borrowed:
            return
        members = {m.uid for m in after.members}
        left = [
            p
            for p in self.pods.values()
            if p.view.origin is Role.ROLLOUT
            and p.view.uid not in members | self._unseated
            and not p.view.deleting
            and p.agent is not None
        ]
        assert len(left) >= self.spec.rollout.min_replicas or self._recently_disturbed(), self.report()

    def _recently_disturbed(self) -> bool:
        """Within the silence limit nobody can know that a machine is gone."""
        times = [n.bad_since for n in self.nodes.values() if n.bad_since is not None]
        return any(self.now - when < 10 * SECOND for when in times)

    def _check_deletion(self, p: SimPod) -> None:
        """A role-based recovery takes nobody away who is well and outside its scope."""
        if p.view.attempt < self.status.attempt:
            assert any(i.scope == "Job" for i in self.status.incidents), self.report()
            return
        if self.spec.recovery.strategy == "WholeJob" or self.spec.suspend or has_ended(self.status):
            return
        well = p.agent is not None and self._reachable(p) and p.view.phase == "Running" and not p.view.deleting
        surplus = p.view.origin is not Role.MANAGER and self._too_many(p.view.origin)
        fenced = p.view.uid in self._unseated
        hopeless = (
            p.agent is not None and p.agent.child.restarts >= self.spec.recovery.budgets.restarts_without_progress
        )
        broken = p.view.uid in self.readings
        injection = self.status.injection
        asked_for = injection is not None and any(target.uid == p.view.uid for target in injection.targets)
        assert not well or surplus or fenced or hopeless or broken or asked_for, (
            f"{p.view.name} is well and was deleted\n{self.report()}"
        )

    def _too_many(self, origin: Role) -> bool:
        members = {m.uid for m in self.status.members}
        count = sum(
            1
            for p in self.pods.values()
            if p.view.origin is origin and not p.view.deleting and p.view.uid not in members | self._unseated
        )
        wanted = {
            Role.ROLLOUT: self.spec.rollout.replicas,
            Role.SERVICE: sum(s.replicas for s in self.spec.services),
            Role.TRAINER: sum(1 for m in self.status.members if not m.uid),
        }
        return count > wanted[origin]


def failed(scope: str = "Process", cause: str = "WorkerExited", evidence: str = "it failed") -> Verdict:
    """A verdict of failure, for the tests of one rule."""
    from robustrl_api.status import Scope
    from robustrl_operator.analyze import Cause, Health

    return Verdict(Health.FAILED, Cause(cause), evidence, Scope(scope))
