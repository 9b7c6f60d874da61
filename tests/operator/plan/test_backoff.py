"""Rule backoff: a restart waits until its time has come, with a timer, then goes on."""

from __future__ import annotations

from tests.operator.build import NOW, SECOND, draft, running_job, with_status

from robustrl_api.status import RecoveryStatus, Stage
from robustrl_operator.plan.rules import backoff
from robustrl_operator.view import timestamp


def waiting(seconds: float) -> RecoveryStatus:
    return RecoveryStatus(stage=Stage.WAITING_FOR_BACKOFF, not_before_time=timestamp(NOW + seconds * SECOND))


def test_waits_with_a_timer() -> None:
    after = backoff.apply(draft(with_status(running_job(), recovery=waiting(4))))
    assert after.wake == 4 * SECOND
    assert "backoff until" in after.waiting_for
    assert after.status.recovery == waiting(4)


def test_goes_on_when_it_is_time() -> None:
    after = backoff.apply(draft(with_status(running_job(), recovery=waiting(0))))
    assert after.wake is None
    assert after.status.recovery
    assert after.status.recovery.stage is Stage.RESTARTING


def test_other_stages_do_not_wait() -> None:
    view = with_status(running_job(), recovery=RecoveryStatus(stage=Stage.WAITING_FOR_POD))
    assert backoff.apply(draft(view)) == draft(view)
