"""What must hold at every moment of every story."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operator.build import SECOND
from tests.operator.world.cluster import containers, reachable
from tests.operator.world.machines import SimPod

from robustrl_api.control import ChildState
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, RLJobStatus, has_ended

if TYPE_CHECKING:
    from tests.operator.world.world import World


def check(world: World) -> None:
    held: dict[tuple[int, int], str] = {}
    for p in containers(world):
        agent = p.agent
        if agent is None or agent.role is not Role.TRAINER:
            continue
        if agent.child.state in (ChildState.STARTING, ChildState.RUNNING):
            key = (agent.child.epoch, agent.rank)
            assert key not in held, f"{held[key]} and {p.view.name} both act as rank {key[1]} of epoch {key[0]}"
            held[key] = p.view.name
    assert world.ledger_epoch <= world.status.epoch, "an epoch acted before it was in status"


def check_stored(before: RLJobStatus, after: RLJobStatus) -> None:
    assert after.epoch in (before.epoch, before.epoch + 1), "the epoch rises by one for each fault"
    assert after.serial >= before.serial, "a serial is never given twice"
    assert after.step >= before.step, "committed steps are never taken back"
    assert {c.type for c in after.conditions} == set(ConditionType), "every condition exists from the start"
    if has_ended(before):
        assert after.conditions[-2:] == before.conditions[-2:] or has_ended(after), "an end is final"


def check_borrowing(world: World, before: RLJobStatus, after: RLJobStatus) -> None:
    """A rollout is borrowed only while `minReplicas` well ones remain."""
    seated = {m.uid for m in after.members if m.uid} - {m.uid for m in before.members}
    borrowed = [uid for uid in seated if uid in world.pods and world.pods[uid].view.origin is Role.ROLLOUT]
    if not borrowed:
        return
    members = {m.uid for m in after.members}
    left = [
        p
        for p in world.pods.values()
        if p.view.origin is Role.ROLLOUT
        and p.view.uid not in members | world.unseated
        and not p.view.deleting
        and p.agent is not None
    ]
    assert len(left) >= world.spec.rollout.min_replicas or recently_disturbed(world), world.report()


def recently_disturbed(world: World) -> bool:
    """Within the silence limit nobody can know that a machine is gone."""
    times = [n.bad_since for n in world.nodes.values() if n.bad_since is not None]
    return any(world.now - when < 10 * SECOND for when in times)


def check_deletion(world: World, p: SimPod) -> None:
    """A role-based recovery takes nobody away who is well and outside its scope."""
    if p.view.attempt < world.status.attempt:
        assert any(i.scope == "Job" for i in world.status.incidents), world.report()
        return
    if world.spec.recovery.strategy == "WholeJob" or world.spec.suspend or has_ended(world.status):
        return
    well = p.agent is not None and reachable(world, p) and p.view.phase == "Running" and not p.view.deleting
    surplus = p.view.origin is not Role.MANAGER and too_many(world, p.view.origin)
    fenced = p.view.uid in world.unseated
    hopeless = p.agent is not None and p.agent.child.restarts >= world.spec.recovery.budgets.restarts_without_progress
    broken = p.view.uid in world.readings and bool(world.readings[p.view.uid].reading.xids)
    injection = world.status.injection
    asked_for = injection is not None and any(target.uid == p.view.uid for target in injection.targets)
    assert not well or surplus or fenced or hopeless or broken or asked_for, (
        f"{p.view.name} is well and was deleted\n{world.report()}"
    )


def too_many(world: World, origin: Role) -> bool:
    members = {m.uid for m in world.status.members}
    count = sum(
        1
        for p in world.pods.values()
        if p.view.origin is origin and not p.view.deleting and p.view.uid not in members | world.unseated
    )
    wanted = {
        Role.ROLLOUT: world.spec.rollout.replicas,
        Role.SERVICE: sum(s.replicas for s in world.spec.services),
        Role.TRAINER: sum(1 for m in world.status.members if not m.uid),
    }
    return count > wanted[origin]
