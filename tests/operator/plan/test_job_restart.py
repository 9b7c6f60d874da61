"""Rule 4: which faults of the training process restart the whole job, and which do not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.build import actions, draft, failed, job, running_job, with_pod, with_status

from robustrl_api.status import RecoveryStatus, Stage
from robustrl_operator.plan import DeletePod
from robustrl_operator.plan.incarnation import restart_trainers
from robustrl_operator.plan.rules import job_restart, outdated

IN_STEP = RecoveryStatus(stage=Stage.TRAINING, step=5, process_faults=1)
AFTER_A_MACHINE = RecoveryStatus(stage=Stage.TRAINING, step=5)
RESTARTING = RecoveryStatus(stage=Stage.RESTARTING, step=5)

# name, status of the job in step 5, scope of the fault -> the rule that applies
TABLE: list[tuple[str, dict[str, Any], str, str]] = [
    ("an ordinary fault", {}, "Process", ""),
    ("first step of the job", {"base_step": 5}, "Process", "4a"),
    ("first step after a resume", {"base_step": 5, "step": 5}, "Process", "4a"),
    ("second fault in the step", {"recovery": IN_STEP}, "Process", "4b"),
    ("first one of the process, after a machine's", {"recovery": AFTER_A_MACHINE}, "Process", ""),
    ("first failed restart", {"recovery": RESTARTING}, "Process", ""),
    ("second failed restart", {"recovery": RESTARTING.model_copy(update={"failed_restarts": 1})}, "Process", "4c"),
    ("a machine lost in the first step", {"base_step": 5}, "Node", ""),
    ("a pod lost in the same step", {"recovery": IN_STEP}, "Pod", ""),
]


@pytest.mark.parametrize(("status", "scope", "rule"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_when_the_whole_job_restarts(status: dict[str, Any], scope: str, rule: str) -> None:
    view = with_status(running_job(), **status)
    after = outdated.apply(job_restart.apply(draft(view, {"j-trainer-2": failed(scope)})))
    assert after.status.attempt == (1 if rule else 0)
    assert len(actions(after, DeletePod)) == (len(view.pods) if rule else 0)
    if rule:
        assert f"rule {rule}" in after.status.incidents[-1].decision
        assert (after.status.epoch, after.status.members, after.status.base_step) == (2, (), 5)


def test_a_fault_of_a_rollouts_process_never_does() -> None:
    view = with_status(running_job(), base_step=5)
    assert job_restart.apply(draft(view, {"j-rollout-3": failed()})).status.attempt == 0


def test_past_the_budget_the_job_fails() -> None:
    view = running_job(job(recovery={"budgets": {"jobRestarts": 1}}))
    view = with_status(view, base_step=5, attempt=1)
    after = job_restart.apply(draft(view, {"j-trainer-2": failed(evidence="the last straw")}))
    assert after.ended
    assert "the last straw" in after.events[-1].message


def test_a_successor_takes_the_pods_of_the_attempt_before_away() -> None:
    view = with_status(running_job(), attempt=1)
    view = with_pod(view, "j-rollout-4", attempt=1)
    kept = {pod.name for pod in view.pods} - {action.name for action in actions(outdated.apply(draft(view)), DeletePod)}
    assert kept == {"j-rollout-4"}


def test_only_faults_of_the_process_are_counted() -> None:
    """A machine is lost, then a process dies in the same step, then another: it is the second of these that tells."""
    view, counted = running_job(), []
    for scope in ("Node", "Process", "Pod"):
        fault = failed(scope, evidence=f"the {len(counted)}th")
        after = restart_trainers(draft(view), fault, "j-trainer-2", view.status.members, "restart").status
        assert after.recovery
        counted.append(after.recovery.process_faults)
        view = with_status(view, **dict(after))
    assert counted == [0, 1, 1]
