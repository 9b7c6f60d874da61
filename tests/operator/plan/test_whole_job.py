"""Rule whole_job: with strategy WholeJob any fault takes every pod away, once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operator.build import actions, draft, failed, job, running_job, with_pod, with_status

from robustrl_api.status import ConditionType
from robustrl_operator.analyze import Cause, Health, Verdict
from robustrl_operator.plan import DeletePod
from robustrl_operator.plan.rules import outdated, whole_job

WHOLE = running_job(job(recovery={"strategy": "WholeJob"}))
EXITED = Verdict(Health.SUSPECT, Cause.ENGINE_EXITED, "engine exited")
LOST_PEER = Verdict(Health.SUSPECT, Cause.PEER_LOST, "a worker lost a peer")


@pytest.mark.parametrize(
    ("pod", "verdict", "restarts"),
    [
        ("j-trainer-1", failed(), True),
        ("j-rollout-3", failed("Pod", "PodDeleted"), True),
        ("j-manager-0", failed("Node", "NodeLost"), True),
        ("j-rollout-3", EXITED, True),
        ("j-trainer-1", LOST_PEER, False),
    ],
)
def test_any_fault_restarts_everything(pod: str, verdict: Verdict, restarts: bool) -> None:
    after = outdated.apply(whole_job.apply(draft(WHOLE, {pod: verdict})))
    deleted = actions(after, DeletePod)
    assert len(deleted) == (len(WHOLE.pods) if restarts else 0)
    assert {action.name for action in deleted if action.force} == ({pod} if verdict.node_lost else set())
    assert (after.status.epoch, after.status.attempt) == ((2, 1) if restarts else (1, 0))
    if restarts:
        assert after.status.members == ()
        assert after.status.recovery
        assert (after.status.recovery.scope, after.status.recovery.stage) == ("Job", "WaitingForPod")


@pytest.mark.parametrize(("attempt", "ended"), [(1, False), (2, True), (3, True)])
def test_restarts_past_the_budget_are_not_made(attempt: int, ended: bool) -> None:
    view = running_job(job(recovery={"strategy": "WholeJob", "budgets": {"jobRestarts": 2}}))
    view = with_pod(with_status(view, attempt=attempt), "j-rollout-3", attempt=attempt)
    after = whole_job.apply(draft(view, {"j-rollout-3": failed(evidence="the last straw")}))
    assert after.ended is ended
    assert after.status.epoch == (1 if ended else 2)
    if ended:
        condition = next(c for c in after.status.conditions if c.type == ConditionType.FAILED)
        assert (condition.status, condition.reason) == ("True", "JobRestartsSpent")
        assert "the last straw" in condition.message
        assert after.status.attempt == attempt
        assert after.status.incidents[-1].evidence == "the last straw"


def test_no_restart_is_counted_once_the_job_has_failed() -> None:
    view = with_status(WHOLE, restarts_without_progress=3)
    after = whole_job.apply(draft(view, {"j-rollout-3": failed()}))
    assert after.ended
    assert after.status.attempt == 0
    assert "JobRestarted" not in [event.reason for event in after.events]


def test_role_based_jobs_are_left_alone() -> None:
    view = running_job()
    assert whole_job.apply(draft(view, {"j-trainer-1": failed()})) == draft(view, {"j-trainer-1": failed()})


def test_pods_of_an_earlier_attempt_have_been_answered_already() -> None:
    """A new operator finds the status written and the pods not yet deleted."""
    view = with_status(WHOLE, attempt=1, epoch=2, members=())
    assert not whole_job.apply(draft(view, {"j-trainer-1": failed()})).actions
    again = with_pod(view, "j-rollout-3", attempt=1)
    assert whole_job.apply(draft(again, {"j-rollout-3": failed()})).status.attempt == 2


def test_scaling_down_is_no_fault() -> None:
    view = with_pod(WHOLE, "j-rollout-6", deleting=True)
    fewer = job(rollout={"replicas": 3}, recovery={"strategy": "WholeJob"})
    assert whole_job.apply(draft(replace(view, spec=fewer))).status.attempt == 0
    assert whole_job.apply(draft(view)).status.attempt == 1, "somebody deleted it"
