"""The world's operator: it hears reports, looks, judges, plans with the real code, and carries out what was planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.operator.build import SECOND
from tests.operator.world.cluster import create, delete, reachable
from tests.operator.world.invariants import check_borrowing, check_deletion, check_stored
from tests.operator.world.machines import Operator, OperatorKilled, SimAgent, SimNode, SimPod
from tests.operator.world.training import managers_up

from robustrl_api.control import Activity, AgentReport, ChildState
from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.node import AsIf
from robustrl_api.status import RLJobStatus
from robustrl_operator.analyze import analyze
from robustrl_operator.faults.kind import Means
from robustrl_operator.plan import (
    Action,
    CreatePod,
    DeletePod,
    HarmMachine,
    Plan,
    ProbePod,
    Relabel,
    StandAside,
    hearsay,
    plan,
)
from robustrl_operator.plan.assign import assignments
from robustrl_operator.view import Heard, JobView, NodeView, Probe

if TYPE_CHECKING:
    from tests.operator.world.world import World


def deliver_reports(world: World) -> None:
    if world.operator.down_until is not None:
        if world.now < world.operator.down_until:
            return
        world.operator = Operator(world.now)
    for p in world.pods.values():
        if p.agent is not None and p.view.origin is not Role.SERVICE and reachable(world, p):
            hear(world, p, p.agent)
    for uid, probe in list(world.operator.probes.items()):
        if not probe.done and world.now - probe.asked >= 0.9 * SECOND:
            p = world.pods.get(uid)
            answers = p is not None and p.agent is not None and reachable(world, p)
            if probe.deep:
                answers = answers and p is not None and p.agent is not None and p.agent.works
            world.operator.probes[uid] = replace(probe, answered=answers, reached=answers, done=True)


def hear(world: World, p: SimPod, agent: SimAgent) -> None:
    before = world.operator.reports.get(p.view.uid)
    manager = agent.role is Role.MANAGER
    report = AgentReport(
        pod=p.view.name,
        boot=str(agent.boot),
        role=agent.role,
        epoch=agent.assignment.epoch if agent.assignment else 0,
        step=world.ledger_step if manager else agent.step,
        admitted=agent.role is Role.ROLLOUT and agent.child.state is ChildState.RUNNING and managers_up(world),
        child=agent.child,
        complaint=agent.complaint,
        struck=agent.struck,
        phase=agent.watch.phase if agent.watch else "",
        activity=agent.watch.report() if agent.watch else Activity(),
    )
    fresh = before is None or (before.report.boot, before.report.child) != (report.boot, report.child)
    changed = world.now if before is None or fresh else before.changed
    world.operator.reports[p.view.uid] = Heard(report, world.now, changed)


def view_of(world: World) -> JobView:
    uids = set(world.pods) | {m.uid for m in world.status.members if m.uid}
    return JobView(
        name="j",
        namespace="ns",
        spec=world.spec,
        status=world.status,
        now=world.now,
        watching_since=world.operator.since,
        generation=world.generation,
        inject=world.inject,
        means=world.means,
        pods=tuple(sorted((p.view for p in world.pods.values()), key=lambda v: v.name)),
        nodes={n.name: NodeView(n.name, ready=seen_ready(world, n)) for n in world.nodes.values()},
        reports={uid: said for uid, said in world.operator.reports.items() if uid in uids},
        readings={uid: observed for uid, observed in world.readings.items() if uid in uids},
        probes={uid: probe for uid, probe in world.operator.probes.items() if uid in uids},
    )


def seen_ready(world: World, node: SimNode) -> bool:
    """The control plane sees after 8 s that a node is gone."""
    return node.bad_since is None or world.now - node.bad_since < 8 * SECOND


def reconcile(world: World) -> None:
    if world.operator.down_until is not None:
        return
    view = view_of(world)
    verdicts = analyze(view)
    world.convictions += [(world.now, verdict) for verdict in verdicts.values() if verdict.failed]
    decided = plan(view, verdicts)
    world.plans.append(decided)
    if all_carried_out(world, effects(world, decided)):
        world.events += decided.events


def effects(world: World, decided: Plan) -> list[Callable[[], None]]:
    """What a plan does to the world, in this order; the status write is the first."""
    stored = [partial(store, world, decided.status)] if decided.status != world.status else []
    return [*stored, partial(assign, world), *(partial(carry_out, world, action) for action in decided.actions)]


def all_carried_out(world: World, effects: list[Callable[[], None]]) -> bool:
    """False if the operator was killed between two of them."""
    try:
        for number, effect in enumerate(effects):
            if world.kill_operator_after == number and (len(effects) > 1 or number > 0):
                raise OperatorKilled
            effect()
        if world.kill_operator_after == len(effects) and len(effects) > 1:
            raise OperatorKilled
    except OperatorKilled:
        world.kill_operator_after = None
        world.replace_operator()
        return False
    return True


def store(world: World, status: RLJobStatus) -> None:
    """As the API server would: JSON in, JSON out."""
    wire = status.model_dump(mode="json", by_alias=True)
    stored = RLJob.model_validate({"metadata": {"name": "j"}, "spec": world.spec, "status": wire}).status
    assert stored == status, "a status must survive its way to the API server and back"
    before = world.status
    check_stored(before, stored)
    check_borrowing(world, before, stored)
    world.unseated |= {m.uid for m in before.members if m.uid} - {m.uid for m in stored.members}
    world.status = stored


def assign(world: World) -> None:
    given = assignments(view_of(world))
    for uid, assignment in given.items():
        p = world.pods[uid]
        if p.agent is not None and reachable(world, p):
            p.agent.assignment = assignment
        if uid in world.readings or hearsay.as_if(world.status.injection, uid):
            say_on_purpose(world, p, hearsay.as_if(world.status.injection, uid))


def say_on_purpose(world: World, p: SimPod, word: str) -> None:
    """As the agent of the pod's node does: an XID stays, all else is said while it is asked for."""
    if word == AsIf.OFF_THE_BUS:
        world.break_gpu(p.view.name)
    if word or not world.readings[p.view.uid].reading.xids:
        world.node_agent_says(p.view.uid, as_if=word)


def carry_out(world: World, action: Action) -> None:
    world.acted.append((world.now, action))
    if isinstance(action, CreatePod):
        create(world, action)
    elif isinstance(action, DeletePod) and action.uid in world.pods:
        check_deletion(world, world.pods[action.uid])
        delete(world, world.pods[action.uid], force=action.force)
    elif isinstance(action, Relabel) and action.uid in world.pods:
        p = world.pods[action.uid]
        p.view = replace(p.view, role=action.role, epoch=action.epoch)
    elif isinstance(action, ProbePod):
        probe = world.operator.probes.get(action.uid)
        if probe is None or probe.done:
            deep = action.seconds is not None
            world.operator.probes[action.uid] = Probe(world.now, answered=False, done=False, deep=deep)
    elif isinstance(action, StandAside):
        world.stop_operator(action.seconds)
    elif isinstance(action, HarmMachine) and action.uid in world.pods and action.means is Means.DRAIN:
        delete(world, world.pods[action.uid], force=False)
    elif isinstance(action, HarmMachine) and action.uid in world.pods:
        world.kill_node(world.pods[action.uid].view.node)
