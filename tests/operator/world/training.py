"""Training in the world: all ranks of one epoch make a step together and commit it to the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operator.build import SECOND
from tests.operator.world.agents import set_child
from tests.operator.world.cluster import containers, reachable
from tests.operator.world.machines import SimPod

from robustrl_api.control import ChildState, Exit
from robustrl_api.names import Role

if TYPE_CHECKING:
    from tests.operator.world.world import World

ENDS_WELL = (Exit(code=0), Exit(code=76, handed_over=True))


def workers(world: World, epoch: int) -> dict[int, SimPod]:
    found = {}
    for p in containers(world):
        agent = p.agent
        if agent and agent.role is Role.TRAINER and agent.child.epoch == epoch:
            found[agent.rank] = p
    return found


def train(world: World) -> None:
    epochs = {p.agent.child.epoch for p in containers(world) if p.agent and p.agent.role is Role.TRAINER}
    for epoch in sorted(epochs - {0}):
        train_epoch(world, epoch, workers(world, epoch))


def train_epoch(world: World, epoch: int, workers: dict[int, SimPod]) -> None:
    running = [p for p in workers.values() if p.agent and p.agent.child.state is ChildState.RUNNING]
    notice_exits(world, workers, running)
    for p in running:
        if world.ledger_epoch > epoch and reachable(world, p) and p.agent:
            set_child(world, p.agent, ChildState.EXITED, Exit(code=1, message="Fenced"))
    together = len(running) == world.spec.trainer.replicas and all(reachable(world, p) for p in running)
    if not together or world.ledger_epoch > epoch or not managers_up(world):
        return
    world.ledger_epoch = epoch
    if world.step_began is None or world.step_began[0] != epoch:
        world.step_began = (epoch, world.now)
    if world.now - world.step_began[1] >= world.step_takes and world.may_step():
        world.step_began = (epoch, world.now)
        world.ledger_step = min(world.ledger_step + 1, world.spec.steps)
        world.committed_epoch = epoch
        hand_over(world, running)
    for p in running:
        assert p.agent is not None
        if p.agent.watch is not None and p.agent.step != world.ledger_step:
            p.agent.watch.committed()
        p.agent.step = world.ledger_step
        if world.ledger_step >= world.spec.steps:
            set_child(world, p.agent, ChildState.EXITED, Exit(code=0))


def hand_over(world: World, running: list[SimPod]) -> None:
    """After a commit the ranks ask whether one of them is wanted to leave; if so all end here."""
    agents = [p.agent for p in running if p.agent]
    if world.ledger_step < world.spec.steps and any(a.assignment and a.assignment.hand_over for a in agents):
        for agent in agents:
            set_child(world, agent, ChildState.EXITED, Exit(code=76, handed_over=True))


def notice_exits(world: World, workers: dict[int, SimPod], running: list[SimPod]) -> None:
    """A connection that closes is seen by the other ranks; a machine that goes silent is not."""
    closed = any(
        p.agent and p.agent.child.state is ChildState.EXITED and p.agent.child.last_exit not in ENDS_WELL
        for p in workers.values()
    )
    for p in running if closed else []:
        if p.agent and reachable(world, p) and world.now - p.agent.child_since >= SECOND:
            set_child(world, p.agent, ChildState.EXITED, Exit(code=75, peer_lost=True))


def managers_up(world: World) -> bool:
    managers = [p for p in world.pods.values() if p.view.origin is Role.MANAGER and p.agent and reachable(world, p)]
    return any(p.agent and p.agent.child.state is ChildState.RUNNING for p in managers)
