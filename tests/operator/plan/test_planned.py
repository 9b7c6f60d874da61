"""Rule 7: what is announced is answered before it happens, and nothing is done twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operator.build import NOW, SECOND, actions, draft, exited, job, running_job, saying, with_pod, with_status
from tests.operator.world.world import World

from robustrl_api.control import Child, ChildState, Exit
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, RecoveryStatus, Stage, holds
from robustrl_operator.analyze import analyze
from robustrl_operator.plan import DeletePod, Plan, plan
from robustrl_operator.plan.assign import assignments
from robustrl_operator.plan.rules import planned
from robustrl_operator.view import JobView, NodeView, timestamp

OVER = Child(state=ChildState.EXITED, epoch=1, last_exit=Exit(code=76, handed_over=True))
TRAINERS = ("j-trainer-1", "j-trainer-2")


def leaving(name: str = "j-trainer-1") -> JobView:
    return with_pod(running_job(), name, deleting=True, ends_at=NOW + 20 * SECOND)


def decide(view: JobView) -> Plan:
    return plan(view, analyze(view))


def test_all_trainers_are_told_and_nothing_is_done_yet() -> None:
    view = leaving()
    assert {a.hand_over for uid, a in assignments(view).items() if uid in view.member_by_uid} == {True}
    decided = decide(view)
    assert (decided.status.epoch, decided.status.members) == (1, view.status.members)
    assert decided.waiting_for == "the trainers to hand over"
    assert actions(decided, DeletePod) == []


def test_one_that_has_ended_waits_for_the_other() -> None:
    assert decide(saying(leaving(), "j-trainer-2", OVER)).status.epoch == 1


def test_when_all_have_ended_a_rollout_takes_the_place() -> None:
    view = leaving()
    for name in TRAINERS:
        view = saying(view, name, OVER)
    decided = decide(view)
    assert decided.status.epoch == 2
    assert [m.pod for m in decided.status.members] == ["j-rollout-3", "j-trainer-2"]
    (incident,) = decided.status.incidents
    assert (incident.cause, incident.replacement) == ("PodLeaving", "j-rollout-3")
    assert incident.lost.startswith("nothing")
    assert "rule 7" in incident.decision
    assert decided.status.recovery
    assert decided.status.recovery.not_before_time == "", "nobody waits for what was planned"


def test_who_changes_its_mind_stays() -> None:
    """The taint was taken off again when the trainers had ended already."""
    view = running_job()
    for name in TRAINERS:
        view = saying(view, name, OVER)
    decided = decide(view)
    assert decided.status.epoch == 2
    assert [m.pod for m in decided.status.members] == list(TRAINERS)


def test_a_failure_while_handing_over_is_a_fault_like_any_other() -> None:
    decided = decide(saying(leaving(), "j-trainer-1", exited(1)))
    assert decided.status.epoch == 2
    assert "rule 3" in decided.status.incidents[0].decision


def test_nobody_hands_over_a_job_that_is_done() -> None:
    """The node is called back while the script writes its results after the last step."""
    view = leaving()
    for name in TRAINERS:
        view = saying(view, name, exited(0))
    assert holds(decide(view).status, ConditionType.SUCCEEDED)


@pytest.mark.parametrize("name", ["j-rollout-4", "j-manager-0"])
def test_other_pods_of_a_node_that_is_called_back_drain_and_are_replaced(name: str) -> None:
    (pod,) = [p for p in running_job().pods if p.name == name]
    view = replace(running_job(), nodes={pod.node: NodeView(pod.node, leaving=True)})
    decided = decide(view)
    assert actions(decided, DeletePod) == [DeletePod(name, pod.uid, force=False)]
    assert decided.status.epoch == 1
    assert [type(a).__name__ for a in decided.actions].count("CreatePod") == 1


def test_one_that_was_given_up_already_is_no_second_fault() -> None:
    """It hands out its checkpoints on a node that is called back, until the trainers are at work again."""
    cold = RecoveryStatus(
        stage=Stage.RESTARTING, step=5, cause="AgentRestarted", replacement="j-rollout-3", detected_time=timestamp(NOW)
    )
    view = with_pod(with_status(running_job(), recovery=cold), "j-rollout-6", role=Role.FENCED, called_back=True)
    decided = decide(view)
    assert decided.status.incidents == ()
    assert actions(decided, DeletePod) == []


def test_whole_job_makes_no_difference_between_faults() -> None:
    view = replace(leaving(), spec=job(recovery={"strategy": "WholeJob"}))
    assert planned.apply(draft(view)).waiting_for == ""
    assert decide(view).status.attempt == 1


def test_a_story_no_step_is_done_twice() -> None:
    world = World().training()
    step = world.ledger_step
    world.delete_pod("j-trainer-1")
    world.training(epoch=2)
    assert "j-trainer-1" not in world.members()
    (incident,) = world.incidents()
    assert incident.cause == "PodLeaving"
    assert incident.step > step, "the step under way was finished first"
    assert len(world.of_role(Role.ROLLOUT)) == 4, "the lost capacity comes back as a rollout"


def test_a_story_trainers_that_cannot_commit_are_lost_when_the_grace_is_over() -> None:
    world = World(step_seconds=60).until(lambda w: w.status.epoch == 1)
    world.run(5)
    world.delete_pod("j-trainer-1")
    world.until(lambda w: w.status.epoch == 2, within=20)
    assert [i.cause for i in world.incidents()] == ["PodDeleted"]
