"""Any faults, at any moment, in any order: the job goes on, and what must always hold holds (see `World`).

ROBUSTRL_EXAMPLES sets how many stories are tried (50), ROBUSTRL_SEED which ones (1). A failing story is printed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from tests.operator.build import SERVICE, job
from tests.operator.world.world import World

from robustrl_api.injection import Request
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, has_ended
from robustrl_operator.kubernetes.body import KubernetesBody

EXAMPLES = int(os.environ.get("ROBUSTRL_EXAMPLES", "50"))
SEED = int(os.environ.get("ROBUSTRL_SEED", "1"))
MAX_LOST_NODES = 3
"""There are this many machines to spare, so that the job can always go on."""


@dataclass(frozen=True)
class Happening:
    what: str
    which: int
    """Which pod, by its place in the list, or how many."""
    wait: float
    """Seconds of virtual time before the next one."""


FAULTS = ["exit child", "delete pod", "kill node", "cut node", "restart agent", "fail pod", "peer lost", "break GPU"]
INJECTED = (
    "worker", "engine", "rollout-pod", "trainer", "trainer-cut", "trainer-drain", "image-gone", "gpu", "exporter-lying",
    "exporter-absent", "storage-full", "leader", "api-server",
)  # fmt: skip
"""Asked for on Kubernetes, whatever else happens."""
OTHERS = ["heal nodes", "new operator", "stop operator", "kill operator", "rollouts", "suspend", "resume"]
HAPPENINGS = st.builds(
    Happening,
    what=st.sampled_from([*FAULTS, *FAULTS, *OTHERS, *["inject"] * 3]),
    which=st.integers(0, 11),
    wait=st.sampled_from([0.0, 0.5, 1.0, 2.5, 4.0, 8.0]),
)


def happen(world: World, it: Happening) -> None:
    if it.what == "inject":
        inject(world, INJECTED[it.which % len(INJECTED)])
    elif it.what == "new operator":
        world.replace_operator()
    elif it.what == "stop operator":
        world.stop_operator(it.which)
    elif it.what == "kill operator":
        world.kill_operator_after = it.which
    elif it.what == "rollouts":
        world.wish(rollout={"replicas": 2 + it.which % 3})
    elif it.what in ("suspend", "resume"):
        world.wish(suspend=it.what == "suspend")
    elif it.what == "heal nodes":
        heal(world)
    elif names := victims(world):
        harm(world, it.what, names[it.which % len(names)])


def inject(world: World, kind: str) -> None:
    """Nodes' agents see the GPUs of all pods that there are."""
    for uid in world.pods:
        world.node_agent_says(uid)
    world.inject = Request(id=f"at-{world.elapsed}", kind=kind).model_dump_json(by_alias=True)


def victims(world: World) -> list[str]:
    """Pods that run, trainers three times: they are what is hard."""
    running = {p.view.name for p in world.pods.values() if p.agent is not None}
    trainers = [name for name in world.members() if name in running]
    return [*trainers * 3, *sorted(running - set(trainers))]


def harm(world: World, what: str, name: str) -> None:
    agent = world.pod(name).agent
    node = world.pod(name).view.node
    lost = sum(1 for n in world.nodes.values() if n.bad_since is not None)
    if what == "exit child":
        world.exit_child(name, -9)
    elif what == "peer lost" and agent is not None and agent.role is Role.TRAINER:
        world.exit_child(name, 75, peer_lost=True)
    elif what == "restart agent":
        world.restart_agent(name)
    elif what == "break GPU" and not node.startswith("cpu"):
        world.break_gpu(name)
    elif what == "delete pod":
        world.delete_pod(name)
    elif what == "fail pod" and not world.pod(name).view.deleting:
        world.fail_pod(name, "Evicted")
    elif what == "kill node" and lost < MAX_LOST_NODES and not node.startswith("cpu"):
        world.kill_node(node)
    elif what == "cut node" and lost < MAX_LOST_NODES and not node.startswith("cpu"):
        world.cut_node(node)


def heal(world: World) -> None:
    for node in world.nodes.values():
        if node.bad_since is not None:
            if node.cut:
                world.heal_node(node.name)
            world.revive_node(node.name)


def settled(world: World) -> bool:
    """Everybody is back, in the role that status says, and nobody is left over."""
    wanted = {Role.TRAINER: 2, Role.ROLLOUT: world.spec.rollout.replicas, Role.MANAGER: 1, Role.SERVICE: 2}
    pods = [p.view for p in world.pods.values()]
    members = {m.uid for m in world.status.members}
    return (
        world.holds(ConditionType.PROGRESSING)
        and world.committed_epoch == world.status.epoch
        and world.status.recovery is None
        and {role: len(world.of_role(role)) for role in wanted} == wanted
        and len(pods) == sum(wanted.values())
        and all(v.epoch == world.status.epoch and v.role is Role.TRAINER for v in pods if v.uid in members)
        and world.holds(ConditionType.READY)
    )


PATCHES: dict[str, dict[str, Any]] = {
    "RoleBased": {},
    "WholeJob": {"recovery": {"strategy": "WholeJob"}},
    "Sync": {"mode": "Sync", "maxStaleness": 0},
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", PATCHES)
def test_any_story_ends_well(kind: str) -> None:
    print(f"ROBUSTRL_SEED={SEED} ROBUSTRL_EXAMPLES={EXAMPLES}")
    examples = EXAMPLES if kind == "RoleBased" else max(1, EXAMPLES // 2)

    @seed(SEED)
    @settings(
        max_examples=examples, deadline=None, database=None, print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(st.lists(HAPPENINGS, min_size=3, max_size=12))
    def play(story: list[Happening]) -> None:
        # Faults may come faster than steps; how many are too many is another test's question.
        budget = {"recovery": {"budgets": {"restartsWithoutProgress": 100}, "backoff": {"baseDelaySeconds": 0}}}
        world = World(job(**(PATCHES[kind] | {"services": [SERVICE]}), steps=100_000), machines=10)
        world.means = KubernetesBody.means
        world.wish(**budget, faultInjection={"mode": "Allowed"})
        world.training()
        for it in story:
            note(f"t={world.elapsed} {it}")
            if has_ended(world.status):
                break
            happen(world, it)
            world.run(it.wait)
        world.kill_operator_after = None
        heal(world)
        if world.spec.suspend:
            world.wish(suspend=False)
        world.until(settled, within=150)
        world.wish(steps=world.ledger_step + 2)
        world.ended()
        assert world.holds(ConditionType.SUCCEEDED), world.condition(ConditionType.FAILED)
        assert world.ledger_step == world.spec.steps

    play()
