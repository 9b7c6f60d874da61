"""Rule 2: a trainer's process failed and its pod is well: everybody restarts in place."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.build import NOW, SECOND, draft, failed, job, running_job, with_status

from robustrl_api.status import has_ended
from robustrl_operator.plan.incarnation import restart_trainers
from robustrl_operator.plan.rules import trainer_process
from robustrl_operator.view import timestamp


def test_same_members_next_epoch_no_action() -> None:
    view = running_job()
    after = trainer_process.apply(draft(view, {"j-trainer-2": failed()}))
    assert after.status.members == view.status.members
    assert after.status.epoch == 2
    assert after.actions == ()
    assert after.status.recovery
    assert after.status.recovery.stage == "Restarting"


def test_two_processes_are_one_fault() -> None:
    after = trainer_process.apply(draft(running_job(), {"j-trainer-1": failed(), "j-trainer-2": failed()}))
    assert after.status.epoch == 2


def test_a_fault_of_a_rollouts_process_is_none_of_its_business() -> None:
    assert trainer_process.apply(draft(running_job(), {"j-rollout-3": failed()})).status.epoch == 1


@pytest.mark.parametrize(("soon", "delay"), [(0, 0), (1, 5), (2, 10), (3, 20), (4, 40), (9, 60)], ids=lambda n: str(n))
def test_backoff_doubles_up_to_its_maximum(soon: int, delay: int) -> None:
    """`soon` restarts in a row came soon after the one before; the first is free."""
    patch = {"backoff": {"baseDelaySeconds": 5, "maxDelaySeconds": 60}, "budgets": {"restartsWithoutProgress": 20}}
    restarted = timestamp(NOW - 5 * SECOND) if soon else ""
    view = with_status(running_job(job(recovery=patch)), unstable_restarts=soon, restarted_time=restarted)
    recovery = trainer_process.apply(draft(view, {"j-trainer-1": failed()})).status.recovery
    assert recovery
    if delay:
        assert recovery.stage == "WaitingForBackoff"
        assert recovery.not_before_time == f"2026-11-21T09:0{delay // 60}:{delay % 60:02}.000000Z"
    else:
        assert (recovery.stage, recovery.not_before_time) == ("Restarting", "")


@pytest.mark.parametrize(
    ("what", "status", "scope", "waits"),
    [
        ("soon after the last restart", {"restarted_time": timestamp(NOW - 9 * SECOND)}, "Process", True),
        ("stable since", {"restarted_time": timestamp(NOW - 11 * SECOND)}, "Process", False),
        ("no step since", {"restarted_time": timestamp(NOW - 99 * SECOND), "restarts_without_progress": 1}, "Process",
         True),
        ("a machine was lost", {"restarted_time": timestamp(NOW - 1 * SECOND)}, "Node", False),
    ],
)  # fmt: skip
def test_only_processes_that_fail_soon_again_wait(what: str, status: dict[str, Any], scope: str, waits: bool) -> None:
    view = with_status(running_job(), unstable_restarts=1, **status)
    after = restart_trainers(draft(view), failed(scope), "j-trainer-1", view.status.members, "restart")
    assert after.status.recovery
    assert (after.status.recovery.stage == "WaitingForBackoff") is waits


@pytest.mark.parametrize(("futile", "ends"), [(2, False), (3, True)])
def test_past_its_budget_the_job_fails_with_a_diagnosis(futile: int, ends: bool) -> None:
    view = with_status(running_job(), restarts_without_progress=futile)
    after = trainer_process.apply(draft(view, {"j-trainer-1": failed(evidence="NameError: x")}))
    assert has_ended(after.status) is ends
    if ends:
        assert "NameError: x" in after.events[-2].message
        assert after.status.recovery is None
        assert after.status.epoch == 1, "no epoch is opened any more"
