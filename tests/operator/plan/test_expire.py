"""Rule expire: a job that ended is deleted when its time is over, and not a moment earlier."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.operator.build import NOW, SECOND, actions, draft, job, running_job, with_status

from robustrl_operator.plan import DeleteJob, plan
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules import expire
from robustrl_operator.plan.rules.conditions import succeed
from robustrl_operator.view import timestamp


def ended(ttl: int | None, *, ago: int) -> Draft:
    """A job with this ttlSecondsAfterFinished that ended so many seconds ago."""
    view = running_job(job(ttlSecondsAfterFinished=ttl), pods=())
    status = succeed(draft(view), "done").status
    return draft(with_status(view, conditions=status.conditions, finished_time=timestamp(NOW - ago * SECOND)))


@pytest.mark.parametrize(
    ("ttl", "ago", "deleted", "wake"),
    [(60, 59, False, 1), (60, 60, True, None), (60, 900, True, None), (0, 0, True, None), (None, 900, False, None)],
)
def test_when_a_job_is_deleted(ttl: int | None, ago: int, deleted: bool, wake: int | None) -> None:
    after = expire.apply(ended(ttl, ago=ago))
    assert after.actions == ((DeleteJob(),) if deleted else ())
    assert after.wake == (None if wake is None else timedelta(seconds=wake))


def test_a_job_that_runs_is_kept() -> None:
    assert expire.apply(draft(running_job(job(ttlSecondsAfterFinished=0)))).actions == ()


def test_the_planner_knows_the_rule() -> None:
    moment = ended(60, ago=61)
    assert actions(plan(moment.view, moment.verdicts), DeleteJob) == [DeleteJob()]
