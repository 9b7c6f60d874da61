"""The plan as a whole: its order, its outcome, its timers."""

from __future__ import annotations

from tests.operator.build import NOW, SECOND, draft, exited, running_job, saying, with_status

from robustrl_api.status import RecoveryStatus, RLJobStatus, Stage
from robustrl_operator.analyze import analyze
from robustrl_operator.plan import CreatePod, plan
from robustrl_operator.plan.rules.conditions import succeed
from robustrl_operator.view import JobView, timestamp


def settled(view: JobView) -> JobView:
    """The view after plans have been carried out that only write status."""
    for _ in range(3):
        view = running_job(status=plan(view, analyze(view)).status)
    return view


def test_planning_is_pure_and_idempotent() -> None:
    view = settled(running_job())
    first = plan(view, analyze(view))
    assert first == plan(view, analyze(view))
    assert first.status == view.status
    assert first.actions == ()
    assert first.events == ()


def test_progress_while_there_is_something_to_do() -> None:
    decided = plan(running_job(status=RLJobStatus(), pods=(), reports={}), {})
    assert decided.outcome == "Progress"
    assert any(isinstance(action, CreatePod) for action in decided.actions)


def test_blocked_says_for_what_and_until_when() -> None:
    later = timestamp(NOW + 7 * SECOND)
    recovery = RecoveryStatus(stage=Stage.WAITING_FOR_BACKOFF, step=5, not_before_time=later)
    view = with_status(settled(running_job()), recovery=recovery)
    view = running_job(status=plan(view, analyze(view)).status)
    decided = plan(view, analyze(view))
    assert decided.outcome == "Blocked"
    assert "backoff" in decided.waiting_for
    assert decided.wake == 7 * SECOND


def test_complete_when_it_ended_and_holds_nothing() -> None:
    ended = succeed(draft(running_job()), "done").status
    assert plan(running_job(status=ended), {}).outcome == "Progress"
    assert plan(running_job(status=ended, pods=()), {}).outcome == "Complete"


def test_a_fault_and_its_answer_are_in_one_plan() -> None:
    view = saying(settled(running_job()), "j-trainer-1", exited(1))
    decided = plan(view, analyze(view))
    assert decided.status.epoch == 2
    assert {action.epoch for action in decided.actions if hasattr(action, "epoch")} == {2}
