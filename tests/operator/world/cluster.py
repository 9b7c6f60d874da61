"""The world's pods and nodes: what the scheduler, the kubelets and the API server do with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.operator.build import SECOND
from tests.operator.world.machines import GRACE, SimAgent, SimNode, SimPod

from robustrl_api.control import ChildState
from robustrl_api.names import Role
from robustrl_operator.plan import CreatePod
from robustrl_operator.view import PodView

if TYPE_CHECKING:
    from tests.operator.world.world import World


def containers(world: World) -> list[SimPod]:
    return [*world.pods.values(), *world.zombies]


def move_pods(world: World) -> None:
    for p in list(world.pods.values()):
        if p.deleted_at is not None:
            if node_of(world, p) is None or reachable(world, p):
                if hands_over(world, p):
                    continue
                p.agent = None
                if world.now >= p.deleted_at:
                    del world.pods[p.view.uid]
        elif p.view.phase == "Pending":
            start(world, p)


def hands_over(world: World, p: SimPod) -> bool:
    """A trainer goes on until it has handed over, is told to stop, or its grace period ends."""
    agent = p.agent
    if agent is None or agent.role is not Role.TRAINER or world.now >= (p.view.ends_at or world.now):
        return False
    wanted = agent.assignment is not None and agent.assignment.role is Role.TRAINER and agent.assignment.run
    over = agent.child.last_exit is not None and agent.child.last_exit.handed_over
    return wanted and (over or agent.child.state in (ChildState.STARTING, ChildState.RUNNING))


def start(world: World, p: SimPod) -> None:
    if not p.view.node:
        node = free_node(world, p.view.origin)
        if node is None:
            p.view = replace(p.view, waiting="Unschedulable", message="no free machine")
            return
        p.view = replace(p.view, node=node, waiting="", message="")
    if not reachable(world, p) or world.now < p.view.created + world.pod_takes:
        return
    if p.waiting:
        p.view = replace(p.view, waiting=p.waiting, message="no such image")
        return
    address = f"10.0.0.{next(world.serial)}"
    p.view = replace(p.view, phase="Running", address=address)
    p.agent = SimAgent(next(world.serial), p.view.origin)


def free_node(world: World, origin: Role) -> str | None:
    gpu = origin in (Role.TRAINER, Role.ROLLOUT)
    taken = {p.view.node for p in containers(world)} if gpu else set()
    free = [n.name for n in world.nodes.values() if n.gpu == gpu and n.name not in taken and ready(world, n)]
    return free[0] if free else None


def ready(world: World, node: SimNode) -> bool:
    return node.bad_since is None or (node.reachable and world.now - node.bad_since < 8 * SECOND)


def node_of(world: World, p: SimPod) -> SimNode | None:
    return world.nodes.get(p.view.node)


def reachable(world: World, p: SimPod) -> bool:
    node = node_of(world, p)
    return node is not None and node.reachable


def delete(world: World, p: SimPod, *, force: bool) -> None:
    if force:
        del world.pods[p.view.uid]
        if p.agent is not None and not reachable(world, p):
            world.zombies.append(p)
        return
    if p.deleted_at is None:
        p.view = replace(p.view, deleting=True, ends_at=world.now + GRACE)
        p.deleted_at = world.now + SECOND


def create(world: World, action: CreatePod) -> None:
    if any(p.view.name == action.name for p in world.pods.values()):
        return  # the API server says 409, and that is no error
    pulls = action.pullable and not world.broken_image(action)
    view = PodView(
        name=action.name, uid=f"uid-{next(world.serial)}", origin=action.role, role=action.role, created=world.now,
        attempt=world.status.attempt,
    )  # fmt: skip
    world.pods[view.uid] = SimPod(view, waiting="" if pulls else "ErrImagePull")
