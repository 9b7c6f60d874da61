"""A world in which whole recoveries are played, in virtual time.

The real analyze, plan and assignments act in it: pods start on simulated nodes, agents carry out what they are
assigned, trainers step and commit, and faults are injected by name. After each moment it checks what must always hold,
whatever the story (`invariants`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.operator.build import NOW, SECOND, job, merge
from tests.operator.world.agents import AGENT_RESTARTED, obey, set_child
from tests.operator.world.cluster import containers, delete, move_pods
from tests.operator.world.control import deliver_reports, reconcile
from tests.operator.world.invariants import check
from tests.operator.world.machines import Operator, SimAgent, SimNode, SimPod
from tests.operator.world.training import train

from robustrl_api.control import Child, ChildState, Exit, Strike
from robustrl_api.names import Role
from robustrl_api.node import PodReading, Source, Xid, XidSeverity
from robustrl_api.spec import RLJobSpec
from robustrl_api.status import ConditionType, Incident, RLJobStatus, has_ended, holds
from robustrl_operator.analyze import Verdict
from robustrl_operator.faults.kind import Means
from robustrl_operator.plan import Action, CreatePod, Event, Plan
from robustrl_operator.view import Observed

TICK = timedelta(seconds=0.5)
"""A job is looked at twice a heartbeat."""


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
        """Kill the operator after so many effects of its next plan that has any; the status write is the first."""
        self.inject = ""
        """The job's annotation."""
        self.means = frozenset(Means)
        """What its body can do."""
        self.strikes: list[tuple[str, Strike]] = []
        self.broken_image: Callable[[CreatePod], bool] = lambda create: False
        self.script = script
        self.live: Callable[[], None] = lambda: None
        """What happens in the job by itself, each moment."""
        self.may_step: Callable[[], bool] = lambda: True
        """Whether the script is far enough to commit its step."""
        self.pod_takes, self.step_takes = pod_seconds * SECOND, step_seconds * SECOND
        self.step_began: tuple[int, datetime] | None = None
        self.serial = itertools.count()
        self.unseated: set[str] = set()
        """Pods that were members and are not any more, by UID: they are fenced."""
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
        move_pods(self)
        for p in containers(self):
            obey(self, p)
        self.live()
        train(self)
        deliver_reports(self)
        reconcile(self)
        check(self)

    # Faults and wishes.

    def exit_child(self, name: str, code: int = 1, message: str = "boom", *, peer_lost: bool = False) -> None:
        agent = self.pod(name).agent
        assert agent is not None
        if agent.child.state in (ChildState.RUNNING, ChildState.STARTING):
            restarts = agent.child.restarts + (agent.role is not Role.TRAINER)
            set_child(self, agent, ChildState.EXITED, Exit(code=code, message=message, peer_lost=peer_lost), restarts)

    def has_started(self, name: str, epoch: int) -> bool:
        """Whether a pod's agent has started the workers of an epoch."""
        agent = self.pod(name).agent
        return agent is not None and agent.started_epoch == epoch

    def restart_agent(self, name: str) -> None:
        """The agent dies; its container is restarted in place and what is in the pod's memory stays."""
        old = self.pod(name).agent
        assert old is not None
        epoch = old.started_epoch
        child = Child(state=ChildState.EXITED, epoch=epoch, last_exit=AGENT_RESTARTED) if epoch else Child()
        self.pod(name).agent = SimAgent(
            next(self.serial), self.pod(name).view.origin, child=child, started_epoch=epoch, struck=old.struck
        )

    def delete_pod(self, name: str) -> None:
        delete(self, self.pod(name), force=False)

    def fail_pod(self, name: str, reason: str) -> None:
        p = self.pod(name)
        p.view = replace(p.view, phase="Failed", reason=reason)
        p.agent = None

    def break_gpu(self, name: str, code: int = 79) -> None:
        """The driver reports an XID of the GPU that the pod holds; its process may not have noticed yet."""
        uid = self.pod(name).view.uid
        xid = Xid(code=code, gpu=f"GPU-of-{name}", severity=XidSeverity.GPU, meaning="it broke")
        self.node_agent_says(uid, xids=(xid,))

    def node_agent_says(self, uid: str, **changes: Any) -> None:
        """Of a pod, besides what it said before."""
        before = self.readings[uid].reading if uid in self.readings else PodReading(uid=uid, source=Source.GPU)
        self.readings[uid] = Observed(before.model_copy(update=changes), self.now)

    def kill_node(self, name: str) -> None:
        self.nodes[name].powered = False
        self.nodes[name].bad_since = self.now
        for p in containers(self):
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
                p.agent = SimAgent(next(self.serial), p.view.origin)

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
