"""Whole recoveries, from the fault to the next optimizer step, in virtual time.

Each story is played by `World`, which also checks at every moment what must always hold: no rank twice in an epoch,
nobody well deleted, nobody borrowed below minReplicas, the epoch in status before anything acts on it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.operator.build import NOW, SERVICE, job
from tests.operator.world.machines import SimAgent
from tests.operator.world.world import World

from robustrl_api.control import Exit
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, has_ended
from robustrl_operator.analyze import Cause
from robustrl_operator.plan import CreatePod, DeletePod


def started(world: World | None = None) -> World:
    return (world or World()).training()


def created(world: World, role: Role, *, after: int = 0) -> list[str]:
    return [action.name for action in world.did(CreatePod)[after:] if action.role is role]


def test_start_to_success() -> None:
    world = started()
    assert world.status.epoch == 1
    assert len(world.of_role(Role.TRAINER)) == 2
    assert len(world.of_role(Role.ROLLOUT)) == 4
    assert len(world.of_role(Role.MANAGER)) == 1
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)
    assert not world.holds(ConditionType.FAILED)
    assert world.status.step == world.spec.steps
    assert world.plans[-1].outcome == "Complete"
    assert len(world.did(CreatePod)) == 7
    assert world.status.incidents == ()


def test_trainer_process_exits_and_the_same_pods_go_on_in_the_next_epoch() -> None:
    world = started()
    before = world.members()
    world.exit_child(before[0], -11, "segfault")
    world.training(epoch=2)
    assert world.members() == before
    assert world.status.epoch == 2
    assert len(world.did(CreatePod)) == 7
    assert not world.did(DeletePod)
    (incident,) = world.incidents()
    assert (incident.cause, incident.scope, incident.epoch) == ("WorkerExited", "Process", 2)
    assert "segfault" in incident.evidence
    assert incident.recovered_time


def test_lost_trainer_pod_is_replaced_by_the_best_rollout_and_comes_back_as_a_rollout() -> None:
    world = started()
    lost = world.members()[1]
    world.delete_pod(lost)
    world.training(epoch=2)
    promoted = world.members()[1]
    assert promoted.startswith("j-rollout")
    assert created(world, Role.TRAINER, after=7) == [], "no trainer pod is waited for"
    assert len(created(world, Role.ROLLOUT, after=7)) == 1
    world.until(lambda w: len(w.of_role(Role.ROLLOUT)) == 4 and not w.pod(w.of_role(Role.ROLLOUT)[-1]).view.deleting)
    assert world.pod(promoted).view.role is Role.TRAINER
    assert world.pod(promoted).view.origin is Role.ROLLOUT
    assert world.status.recovery is None
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)


def test_a_trainer_on_a_broken_gpu_is_replaced_and_its_node_shunned() -> None:
    world = started()
    victim, peer = world.members()
    node = world.pod(victim).view.node
    rollouts = world.of_role(Role.ROLLOUT)
    world.break_gpu(victim)
    world.training(epoch=2)
    assert set(world.members()) == {rollouts[0], peer}
    (incident,) = world.incidents()
    assert (incident.cause, incident.scope, incident.pod) == ("GpuFailed", "Pod", victim)
    assert f"XID 79 (it broke) of GPU-of-{victim} on node {node}" in incident.evidence
    (action,) = world.did(CreatePod)[7:]
    assert (action.role, action.suspect_nodes) == (Role.ROLLOUT, (node,))
    assert [(deleted.name, deleted.force) for deleted in world.did(DeletePod)] == [(victim, False)]
    world.run(8)
    assert world.status.epoch == 2, "once"


def test_a_rollout_on_a_broken_gpu_does_not_disturb_training() -> None:
    world = started()
    victim = world.of_role(Role.ROLLOUT)[-1]
    world.break_gpu(victim)
    world.run(8)
    assert world.status.epoch == 1
    assert victim not in world.of_role(Role.ROLLOUT)
    assert len(world.of_role(Role.ROLLOUT)) == 4
    assert [incident.cause for incident in world.incidents("rollout")] == ["GpuFailed"]


def test_trainers_do_not_wait_for_the_new_rollout() -> None:
    world = started(World(pod_seconds=15))
    fault = world.elapsed
    world.delete_pod(world.members()[0])
    world.training(epoch=2)
    assert world.elapsed - fault < 5, "shorter than any pod's start"


def test_dead_node_is_found_by_silence_and_its_pod_force_deleted() -> None:
    world = started()
    lost = world.members()[0]
    fault = world.elapsed
    world.kill_node(world.pod(lost).view.node)
    world.training(epoch=2)
    assert world.elapsed - fault < 10
    assert world.members()[0].startswith("j-rollout")
    deletions = [action for action in world.did(DeletePod) if action.name == lost]
    assert deletions
    assert deletions[-1].force
    assert lost not in {p.view.name for p in world.pods.values()}
    (incident,) = world.incidents()
    assert incident.scope == "Node"


def test_partitioned_trainer_is_fenced_and_its_late_return_changes_nothing() -> None:
    world = started()
    lost = world.members()[0]
    node = world.pod(lost).view.node
    world.cut_node(node)
    world.training(epoch=2)
    assert any(z.view.name == lost for z in world.zombies), "its container still runs"
    world.heal_node(node)
    world.run(5)
    assert world.status.epoch == 2
    assert lost not in world.members()
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)


def test_silence_shorter_than_the_limit_is_no_fault() -> None:
    world = started()
    node = world.pod(world.members()[0]).view.node
    world.cut_node(node)
    world.run(1.5)
    world.heal_node(node)
    world.run(10)
    assert world.status.epoch == 1
    assert not world.status.incidents


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"rollout": {"replicas": 2, "minReplicas": 2}}, id="no rollout to spare"),
        pytest.param({"mode": "Sync", "maxStaleness": 0}, id="Sync mode"),
        pytest.param({"recovery": {"standby": {"mode": "Off"}}}, id="standby Off"),
    ],
)
def test_without_standby_a_new_trainer_pod_comes_and_rollouts_are_untouched(patch: dict[str, Any]) -> None:
    world = started(World(job(**patch)))
    rollouts, pods = world.of_role(Role.ROLLOUT), len(world.did(CreatePod))
    world.delete_pod(world.members()[0])
    world.training(epoch=2)
    assert len(created(world, Role.TRAINER, after=pods)) == 1
    assert world.of_role(Role.ROLLOUT) == rollouts
    assert all(name.startswith("j-trainer") for name in world.members())
    assert world.status.epoch == 2


def test_two_trainers_lost_at_once_are_one_recovery() -> None:
    world = started()
    for name in world.members():
        world.delete_pod(name)
    world.training(epoch=2)
    assert world.status.epoch == 2
    assert all(name.startswith("j-rollout") for name in world.members())
    assert len(set(world.members())) == 2


@pytest.mark.parametrize("with_them", [0, 1])
@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0])
def test_machines_that_fall_silent_together_cost_one_restart(apart: float, with_them: int) -> None:
    """All trainers', and a rollout's that would have been promoted."""
    world = started(World(job(rollout={"replicas": 5}), machines=10))
    first_to_be_promoted = world.of_role(Role.ROLLOUT)[:with_them]
    for name in [*world.members(), *first_to_be_promoted]:
        world.kill_node(world.pod(name).view.node)
        world.run(apart)
    world.training(epoch=2)
    assert world.status.epoch == 2
    assert len(world.incidents()) == 1
    assert not set(world.members()) & set(first_to_be_promoted)


def test_three_trainers_lost_with_two_to_spare() -> None:
    world = started(World(job(trainer={"replicas": 3}), machines=12))
    pods = len(world.did(CreatePod))
    for name in world.members():
        world.delete_pod(name)
    world.training(epoch=2)
    assert sorted(name.split("-")[1] for name in world.members()) == ["rollout", "rollout", "trainer"]
    assert len(created(world, Role.TRAINER, after=pods)) == 1


@pytest.mark.parametrize("how", ["delete", "node", "evicted"])
def test_lost_rollout_does_not_disturb_training(how: str) -> None:
    world = started()
    lost, step = world.of_role(Role.ROLLOUT)[0], world.ledger_step
    if how == "node":
        world.kill_node(world.pod(lost).view.node)
    elif how == "delete":
        world.delete_pod(lost)
    else:
        world.fail_pod(lost, "Evicted")
    world.run(10)
    assert world.ledger_step - step >= 9, "a step each second, all the time"
    assert world.status.epoch == 1
    assert len(created(world, Role.ROLLOUT, after=7)) == 1
    assert len(world.of_role(Role.ROLLOUT)) == 4
    (incident,) = world.incidents("rollout")
    assert incident.recovered_time


def test_engine_that_exits_is_restarted_by_its_agent_alone() -> None:
    world = started()
    world.exit_child(world.of_role(Role.ROLLOUT)[0], -9)
    world.run(10)
    assert world.status.epoch == 1
    assert len(world.did(CreatePod)) == 7
    assert [i.cause for i in world.incidents("rollout")] == ["EngineExited"]


@pytest.mark.parametrize(
    "how",
    [
        "exit",
        "delete",
        "node",
    ],
)
def test_manager_fails_alone(how: str) -> None:
    world = started()
    (manager,) = world.of_role(Role.MANAGER)
    members = world.members()
    if how == "exit":
        world.exit_child(manager)
    elif how == "delete":
        world.delete_pod(manager)
    else:
        world.kill_node(world.pod(manager).view.node)
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)
    assert world.status.epoch == 1
    assert members == [m.pod for m in world.status.members]
    assert len(created(world, Role.MANAGER)) == (1 if how == "exit" else 2)
    assert len(world.incidents("manager")) == 1


def test_service_pods_are_restarted_alone() -> None:
    world = started(World(job(services=[SERVICE])))
    judges = world.of_role(Role.SERVICE)
    assert len(judges) == 2
    world.fail_pod(judges[0], "OOMKilled")
    world.run(10)
    assert len(world.of_role(Role.SERVICE)) == 2
    assert judges[0] not in world.of_role(Role.SERVICE)
    assert world.status.epoch == 1


@pytest.mark.parametrize("victim", [Role.TRAINER, Role.ROLLOUT, Role.MANAGER])
def test_whole_job_restarts_everything_through_the_same_code(victim: Role) -> None:
    world = started(World(job(recovery={"strategy": "WholeJob"})))
    first = {p.view.uid for p in world.pods.values()}
    world.exit_child(world.of_role(victim)[0])
    world.training(epoch=2)
    assert world.status.attempt == 1
    assert not first & set(world.pods)
    assert len(world.did(CreatePod)) == 14
    assert world.incidents()[-1].scope == "Job"
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)
    assert world.status.epoch == 2


def test_script_that_always_raises_fails_with_a_diagnosis_after_its_budget() -> None:
    world = World(script=lambda epoch: Exit(code=1, message="NameError: name 'lerning_rate' is not defined"))
    world.ended()
    failure = world.condition(ConditionType.FAILED)
    assert failure.reason == "NoProgress"
    assert "lerning_rate" in failure.message
    budget = world.spec.recovery.budgets.restarts_without_progress
    assert world.status.epoch == 1 + budget
    # The first restart is immediate, the next waits 5 s, the third 10 s.
    times = [world.plans.index(p) for p in world.plans if any("NameError" in e.message for e in p.events)]
    gaps = [(b - a) / 2 for a, b in pairwise(times)]
    assert gaps[0] < 5
    assert 5 <= gaps[1] < 8
    assert 10 <= gaps[2] < 13


def test_script_that_raises_twice_and_then_trains_gets_its_budget_back() -> None:
    world = World(script=lambda epoch: Exit(code=1, message="flaky") if epoch < 3 else None)
    world.training(epoch=3)
    assert world.status.restarts_without_progress == 0


@pytest.mark.parametrize("role", [Role.TRAINER, Role.ROLLOUT, Role.MANAGER])
def test_bad_image_ends_the_job_naming_it(role: Role) -> None:
    world = World()
    world.broken_image = lambda create: create.role is role
    world.ended()
    failure = world.condition(ConditionType.FAILED)
    assert failure.reason == "BadImage"
    assert "no such image" in failure.message
    field = "spec.manager.template" if role is Role.MANAGER else "spec.trainer.template"
    assert field in failure.message, "rollouts without a template have the trainer's"


@pytest.mark.parametrize("role", [Role.ROLLOUT, Role.MANAGER])
def test_a_job_that_trains_outlives_a_registry_that_is_away(role: Role) -> None:
    world = started(World(job(steps=100_000)))
    world.broken_image = lambda create: True
    lost = world.of_role(role)[0]
    world.delete_pod(lost)
    world.until(lambda w: any(p.view.waiting for p in w.pods.values())).run(60)
    assert not has_ended(world.status)
    pending = [p for p in world.pods.values() if p.waiting]
    assert len(pending) == 1, "one pod waits for its image, and none is made and taken away again and again"
    degraded = world.condition(ConditionType.DEGRADED)
    assert f"image of {pending[0].view.name} cannot be pulled (ErrImagePull): no such image" in degraded.message
    pending[0].waiting = ""
    world.until(lambda w: w.holds(ConditionType.READY))
    assert world.condition(ConditionType.DEGRADED).message == ""
    assert world.status.epoch == 1


def test_suspend_gives_everything_back_and_resume_goes_on() -> None:
    world = started()
    world.wish(suspend=True)
    world.until(lambda w: not w.pods)
    assert world.holds(ConditionType.SUSPENDED)
    assert not has_ended(world.status)
    step = world.ledger_step
    world.run(20)
    assert not world.pods
    world.wish(suspend=False)
    world.training(epoch=2)
    assert world.ledger_step > step
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)


@pytest.mark.parametrize("strategy", ["RoleBased", "WholeJob"])
def test_resumed_while_its_pods_still_leave_and_one_fails(strategy: str) -> None:
    """Going on and answering a fault are two epochs, not one jump."""
    world = started(World(job(recovery={"strategy": strategy})))
    trainer = world.members()[0]
    world.exit_child(trainer)
    world.wish(suspend=True)
    world.exit_child(trainer)
    world.run(0.5)
    world.wish(suspend=False)
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)


def test_new_operator_judges_nobody_in_its_grace() -> None:
    world = started(World(job(steps=100)))
    world.stop_operator(30)
    world.run(40)
    assert world.status.epoch == 1
    assert not world.status.incidents
    assert not world.did(DeletePod)


def test_new_operator_finds_a_trainer_that_died_while_nobody_looked() -> None:
    world = started()
    world.stop_operator(10)
    world.kill_node(world.pod(world.members()[0]).view.node)
    world.training(epoch=2)
    assert world.status.epoch == 2


def test_peers_that_only_lost_a_peer_cost_no_restart_of_their_own() -> None:
    world = started()
    world.exit_child(world.members()[1])
    world.training(epoch=2)
    world.run(5)
    assert world.status.epoch == 2
    assert len(world.incidents()) == 1


def test_everybody_lost_a_peer_and_nobody_is_lost() -> None:
    """A broken connection between two trainers that are both well."""
    world = started()
    for name in world.members():
        world.exit_child(name, 75, "connection reset", peer_lost=True)
    world.training(epoch=2)
    assert world.status.epoch == 2


def test_one_lost_its_peer_and_the_other_goes_on() -> None:
    """One side of a connection sees an error, the other waits for it for ever."""
    world = started(World(job(trainer={"replicas": 2})))
    world.exit_child(world.members()[0], 75, "connection reset", peer_lost=True)
    world.training(epoch=2)
    assert world.status.epoch == 2


def test_agent_restarted_in_place_restarts_the_epoch_once() -> None:
    world = started(World(job(rollout={"minReplicas": 4})))
    world.restart_agent(world.members()[0])
    world.training(epoch=2)
    world.run(5)
    assert world.status.epoch == 2
    assert len(world.did(CreatePod)) == 7


def test_a_trainer_whose_agent_was_restarted_gives_its_seat_to_a_standby_and_its_checkpoints_to_it() -> None:
    world = started(World(job(steps=1000)))
    cold, other = world.members()
    world.restart_agent(cold)
    world.until(lambda w: w.status.epoch == 2)
    assert world.members() == ["j-rollout-3", other]
    assert not world.did(DeletePod), "the one that takes its place may want its checkpoint"
    world.training(epoch=2).run(30)
    assert world.members() == ["j-rollout-3", other]
    assert [action.name for action in world.did(DeletePod)] == [cold]
    assert len(world.did(CreatePod)) == 8
    (incident,) = world.incidents()
    assert (incident.cause, incident.scope, incident.replacement) == ("AgentRestarted", "Pod", "j-rollout-3")


def test_agents_of_trainers_that_are_restarted_again_and_again_cost_one_pod() -> None:
    world = started()
    for epoch in (1, 2):
        world.until(lambda w, epoch=epoch: w.has_started(w.members()[0], epoch))
        world.restart_agent(world.members()[0])
    world.until(lambda w: w.status.epoch == 3)
    assert world.members()[0] == "j-rollout-3", "the second restart is in place"


def test_fault_inside_a_recovery_prolongs_it() -> None:
    world = started()
    world.delete_pod(world.members()[0])
    world.until(lambda w: w.status.epoch == 2)
    detected = world.status.recovery and world.status.recovery.detected_time
    world.delete_pod(world.members()[0])
    world.until(lambda w: w.status.epoch == 3)
    assert world.status.recovery
    assert world.status.recovery.detected_time == detected
    world.training(epoch=3)
    assert len(world.incidents()) == 2
    assert all(incident.recovered_time for incident in world.incidents())
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)


def test_more_rollouts_then_fewer() -> None:
    world = started()
    world.wish(rollout={"replicas": 6})
    world.until(lambda w: len(w.of_role(Role.ROLLOUT)) == 6)
    oldest = world.of_role(Role.ROLLOUT)[:3]
    world.wish(rollout={"replicas": 3})
    world.until(lambda w: len([p for p in w.pods.values() if p.view.role is Role.ROLLOUT]) == 3)
    assert world.of_role(Role.ROLLOUT) == oldest, "the youngest go"
    assert world.status.rollout_replicas == 3
    assert world.status.epoch == 1


def test_fewer_services_and_none() -> None:
    world = started(World(job(services=[SERVICE], steps=100)))
    world.wish(services=[{**SERVICE, "replicas": 1}])
    world.until(lambda w: len(w.of_role(Role.SERVICE)) == 1)
    world.wish(services=[])
    world.until(lambda w: not w.of_role(Role.SERVICE))
    assert world.status.epoch == 1


def test_services_whose_names_begin_alike_are_counted_apart() -> None:
    world = started(World(job(services=[{**SERVICE, "replicas": 1}, {**SERVICE, "name": "judge-fast"}])))
    world.run(5)
    assert len([n for n in world.of_role(Role.SERVICE) if n.startswith("j-judge-fast-")]) == 2
    assert len(world.of_role(Role.SERVICE)) == 3


def test_epochs_rise_only_for_faults() -> None:
    world = started()
    world.wish(rollout={"replicas": 5})
    world.replace_operator()
    world.run(15)
    assert world.status.epoch == 1


FAULTS = {
    "start-up": lambda w: None,
    "trainer process": lambda w: w.training().exit_child(w.members()[0]),
    "trainer pod": lambda w: w.training().delete_pod(w.members()[0]),
    "trainer node": lambda w: w.training().kill_node(w.pod(w.members()[0]).view.node),
    "both trainers": lambda w: [w.training(), *map(w.delete_pod, w.members())],
    "rollout pod": lambda w: w.training().delete_pod(w.of_role(Role.ROLLOUT)[0]),
    "manager pod": lambda w: w.training().delete_pod(w.of_role(Role.MANAGER)[0]),
    "suspended": lambda w: w.training().wish(suspend=True),
}


@pytest.mark.parametrize("strategy", ["RoleBased", "WholeJob"])
@pytest.mark.parametrize("fault", FAULTS)
def test_operator_killed_between_any_two_effects_of_a_plan(fault: str, strategy: str) -> None:
    """Status first, then actions that are harmless to repeat: a successor that knows nothing ends well all the same."""
    for kill_after in range(0, 12):
        world = World(job(recovery={"strategy": strategy}, steps=12))
        FAULTS[fault](world)
        plans = len(world.plans)
        world.kill_operator_after = kill_after
        world.run(6)
        if world.kill_operator_after is not None:
            assert len(world.plans) > plans
            return  # no plan of this story has so many effects
        if world.spec.suspend:
            world.until(lambda w: not w.pods)
            world.wish(suspend=False)
        world.ended()
        assert world.holds(ConditionType.SUCCEEDED), f"killed after effect {kill_after}\n{world.report()}"
        assert world.status.epoch <= 3


@pytest.mark.parametrize("fault", [World.delete_pod, lambda w, name: w.kill_node(w.pod(name).view.node)])
def test_job_outlives_its_manager_pod(fault: Any) -> None:
    world = started()
    fault(world, world.of_role(Role.MANAGER)[0])
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)
    assert len(world.incidents("manager")) == 1


SHORT_START = {"startupSeconds": 20}


def hung_starts(world: World) -> list[float]:
    """When engines were taken for hung, in seconds."""
    times = [when for when, verdict in world.convictions if verdict.cause is Cause.ENGINE_HUNG and not verdict.pod_lost]
    return [(when - NOW).total_seconds() for when in times]


def an_engine_that_hangs_as_it_starts_again() -> tuple[World, SimAgent, str]:
    """A job at work in which an engine has just been killed; its agent, and its pod."""
    world = started(World(job(steps=200, detection=SHORT_START)))
    victim = world.of_role(Role.ROLLOUT)[0]
    agent = world.pod(victim).agent
    assert agent is not None
    agent.hangs = True
    world.exit_child(victim, -9)
    return world, agent, victim


def test_engine_that_hangs_as_it_starts_again_is_ended_and_the_next_one_is_given_its_time() -> None:
    world, agent, _ = an_engine_that_hangs_as_it_starts_again()
    fault = world.elapsed
    world.until(lambda w: agent.lives == 3)
    agent.hangs = False
    found = hung_starts(world)
    assert 20 < found[0] - fault < 25
    assert found[-1] - found[0] < 2, "its end is not long in coming"
    world.run(60)
    assert hung_starts(world) == found, "once for each life"
    assert (agent.lives, agent.child.state, world.status.convictions) == (3, "Running", ())
    assert [incident.cause for incident in world.incidents("rollout")] == ["EngineExited", "EngineHung"]
    assert "uses no processor" in world.incidents("rollout")[1].evidence
    assert world.status.epoch == 1
    assert len(world.did(CreatePod)) == 7


def test_engine_that_hangs_at_each_start_costs_its_pod_and_not_the_job() -> None:
    world, agent, victim = an_engine_that_hangs_as_it_starts_again()
    fault = world.elapsed
    world.until(lambda w: victim not in w.of_role(Role.ROLLOUT))
    assert agent.child.restarts == world.spec.recovery.budgets.restarts_without_progress
    assert world.elapsed - fault > 40, "each start had its time"
    assert "in vain" in world.incidents("rollout")[-1].evidence
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)
    assert world.status.epoch == 1


def test_engines_that_never_come_up_end_a_job_that_never_worked_with_a_diagnosis() -> None:
    world = World(job(detection=SHORT_START))
    world.may_step = lambda: False

    def hang() -> None:
        for name in world.of_role(Role.ROLLOUT):
            if (agent := world.pod(name).agent) is not None:
                agent.hangs = True

    world.live = hang
    world.ended()
    assert world.holds(ConditionType.FAILED)
    failure = world.condition(ConditionType.FAILED)
    assert failure.reason == "BadConfiguration"
    assert "it hung (restarted 3 times in vain) (role rollout)" in failure.message


def test_engine_that_keeps_exiting_later_costs_its_pod_and_not_the_job() -> None:
    world = started(World(job(steps=60)))
    victim = world.of_role(Role.ROLLOUT)[0]
    for _ in range(3):
        world.exit_child(victim, -9)
        world.run(5)
    assert victim not in world.of_role(Role.ROLLOUT)
    world.ended()
    assert world.holds(ConditionType.SUCCEEDED)
