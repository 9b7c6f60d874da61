"""Rule completion: the job has succeeded when every rank's script ended well in the current epoch."""

from __future__ import annotations

import pytest
from tests.operator.build import draft, exited, running_job, saying, with_status

from robustrl_api.control import Child, ChildState
from robustrl_api.status import ConditionType, has_ended, holds
from robustrl_operator.plan.rules import completion

WELL, RUNNING, BAD = exited(0), Child(state=ChildState.RUNNING, epoch=1), exited(1)
OLD = exited(0, epoch=0)


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [(WELL, WELL, True), (WELL, RUNNING, False), (WELL, BAD, False), (OLD, OLD, False), (RUNNING, RUNNING, False)],
)
def test_all_ranks_ended_well_in_this_epoch(first: Child, second: Child, ends: bool) -> None:
    view = saying(saying(running_job(), "j-trainer-1", first, step=9), "j-trainer-2", second, step=9)
    after = completion.apply(draft(view))
    assert has_ended(after.status) is ends
    assert holds(after.status, ConditionType.SUCCEEDED) is ends
    assert bool(after.status.finished_time) is ends
    if ends:
        assert after.status.step == 9


def test_no_members_is_no_success() -> None:
    assert not has_ended(completion.apply(draft(with_status(running_job(), members=()))).status)
