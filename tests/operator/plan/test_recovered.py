"""Rule recovered: a recovery ends with the first step after it, not with processes that run."""

from __future__ import annotations

import pytest
from tests.operator.build import NOW, SECOND, draft, running_job, saying, with_status

from robustrl_api.control import Child, ChildState
from robustrl_api.status import Incident, RecoveryStatus, Scope
from robustrl_operator.plan.rules import recovered
from robustrl_operator.view import timestamp

FAULT = timestamp(NOW - 3 * SECOND)
INCIDENTS = tuple(
    Incident(role=role, pod="p", cause="C", decision="d", scope=Scope.POD, epoch=2, step=5, detected_time=FAULT)
    for role in ("trainer", "rollout")
)
VIEW = with_status(
    running_job(), epoch=2, recovery=RecoveryStatus(step=5, detected_time=FAULT), incidents=INCIDENTS,
    restarts_without_progress=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("epoch", "step", "over"),
    [
        pytest.param(2, 6, True, id="a step in the new epoch"),
        pytest.param(2, 5, False, id="running, no step yet"),
        pytest.param(1, 6, False, id="a step that the old epoch still made"),
    ],
)
def test_recovery_ends_with_a_step(epoch: int, step: int, over: bool) -> None:
    view = saying(VIEW, "j-trainer-1", Child(state=ChildState.RUNNING, epoch=epoch), step=step)
    after = recovered.apply(draft(view))
    assert (after.status.recovery is None) is over
    assert after.status.restarts_without_progress == (0 if over else 2)
    assert [bool(i.recovered_time) for i in after.status.incidents] == [over, False]
    if over:
        assert "3.00 s" in after.events[-1].message


def test_a_bystanders_step_ends_nothing() -> None:
    view = saying(VIEW, "j-rollout-3", Child(state=ChildState.RUNNING, epoch=2), step=6)
    assert recovered.apply(draft(view)).status.recovery is not None


def test_the_incident_of_a_recovery_that_was_cut_short_stays_open() -> None:
    before = INCIDENTS[0].model_copy(update={"detected_time": timestamp(NOW - 600 * SECOND)})
    view = saying(VIEW, "j-trainer-1", Child(state=ChildState.RUNNING, epoch=2), step=6)
    after = recovered.apply(draft(with_status(view, incidents=(before, *INCIDENTS))))
    assert [bool(i.recovered_time) for i in after.status.incidents] == [False, True, False]


def test_a_step_that_was_made_before_the_fault_and_heard_of_after_it_ends_nothing() -> None:
    """Rank 1 dies right after the commit, and its exit is heard of before rank 0's word of the step."""
    late = saying(VIEW, "j-trainer-1", Child(state=ChildState.STARTING, epoch=2), step=6)
    after = recovered.apply(draft(late)).status
    assert after.recovery
    assert after.restarts_without_progress == 2
    at_work = Child(state=ChildState.RUNNING, epoch=2)
    again = recovered.apply(draft(saying(with_status(late, recovery=after.recovery), "j-trainer-1", at_work, step=6)))
    assert again.status.recovery, "still the same step"
    over = recovered.apply(draft(saying(with_status(late, recovery=after.recovery), "j-trainer-1", at_work, step=7)))
    assert over.status.recovery is None
