"""What is counted as the times of a fault that was played, and what is held against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from robustrl_api.status import Condition, ConditionType, Incident, RLJobStatus, Scope, Truth
from robustrl_e2e.play import Picture, judge, judge_end, times_of
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.faults.matrix import Row

STRUCK = 1_700_000_000.0
ROW = Row(FaultKind.WORKER, "killed")
FOUND = Incident(
    role="trainer", pod="p", cause="c", decision="d", scope=Scope.PROCESS, epoch=2, step=1,
    detected_time="2023-11-14T22:13:21.500000Z",
)  # fmt: skip


@pytest.mark.parametrize(
    ("row", "found", "wanted"),
    [
        pytest.param(ROW, [FOUND], (1.5, 4.0), id="both from the fault"),
        pytest.param(
            replace(ROW, belated=True), [FOUND], (None, 2.5), id="from the verdict, where it takes effect later"
        ),
        pytest.param(ROW, [], (None, 4.0), id="no verdict"),
    ],
)
def test_times_of_a_fault(row: Row, found: list[Incident], wanted: tuple[float | None, float]) -> None:
    assert times_of(row, STRUCK, found, STRUCK + 4.0) == wanted


BEFORE = Picture(1, 0, uids={"t0": "a", "t1": "b", "m": "c"}, boots={"t0": "1", "t1": "1", "m": "1"})
IN_PLACE = Row(FaultKind.WORKER, "killed", ("c",), "2", epochs=1)
REPLACED = replace(IN_PLACE, keeps_pod=False)
WHOLE_JOB = replace(IN_PLACE, whole_job=True, keeps_pod=False)
ANSWERED = FOUND.model_copy(update={"decision": "rule 2: restart"})
NEW_POD = replace(BEFORE, epoch=2, uids={"t0": "a", "r1": "d", "m": "c"}, boots={"t0": "1", "r1": "1", "m": "1"})
NEW_JOB = replace(BEFORE, epoch=2, uids={"t0": "d", "t1": "e", "m": "f"}, boots={"t0": "2", "t1": "2", "m": "2"})


@pytest.mark.parametrize(
    ("row", "after", "found", "complaint"),
    [
        pytest.param(IN_PLACE, replace(BEFORE, epoch=2), [ANSWERED], "", id="a process in place"),
        pytest.param(REPLACED, NEW_POD, [ANSWERED], "", id="a pod"),
        pytest.param(WHOLE_JOB, NEW_JOB, [ANSWERED], "", id="the whole job"),
        pytest.param(IN_PLACE, BEFORE, [ANSWERED], "epoch rose by 0, not 1", id="no new epoch"),
        pytest.param(IN_PLACE, NEW_POD, [ANSWERED], "t1 is gone", id="more than a process"),
        pytest.param(REPLACED, replace(BEFORE, epoch=2), [ANSWERED], "t1 is still there", id="less than a pod"),
        pytest.param(WHOLE_JOB, NEW_POD, [ANSWERED], "t0 is still there", id="less than the whole job"),
        pytest.param(
            REPLACED, replace(NEW_POD, boots={**NEW_POD.boots, "m": "2"}), [ANSWERED], "agent of m restarted",
            id="somebody else as well",
        ),
        pytest.param(IN_PLACE, replace(BEFORE, epoch=2, undone=1), [ANSWERED], "1 steps were trained again", id="work"),
        pytest.param(
            replace(IN_PLACE, undone=1), replace(BEFORE, epoch=2), [ANSWERED], "0 steps were trained again, not 1",
            id="a damaged checkpoint was used",
        ),
        pytest.param(
            replace(IN_PLACE, may_undo=1), replace(BEFORE, epoch=2, undone=1), [ANSWERED], "", id="no copy had gone out"
        ),
        pytest.param(IN_PLACE, replace(BEFORE, epoch=2), [ANSWERED] * 2, "2 incidents", id="taken for two faults"),
        pytest.param(IN_PLACE, replace(BEFORE, epoch=2), [FOUND], "not answered by rule 2", id="another rule"),
    ],
)  # fmt: skip
def test_what_should_have_held(row: Row, after: Picture, found: list[Incident], complaint: str) -> None:
    said = list(judge(row, BEFORE, after, ("t1",), found))
    assert bool(said) is bool(complaint)
    assert complaint in "; ".join(said)


FAILS = Row(FaultKind.WORKER_EXCEPTION, "always", ("c",), "2", epochs=1, fails="NoProgress")


def ended(type: ConditionType, reason: str, epoch: int = 2) -> RLJobStatus:
    condition = Condition(type=type, status=Truth.TRUE, reason=reason, last_transition_time="now")
    return RLJobStatus(epoch=epoch, conditions=(condition,), incidents=(ANSWERED,))


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        (ended(ConditionType.FAILED, "NoProgress"), ""),
        (ended(ConditionType.FAILED, "BudgetExhausted"), "not as Failed for NoProgress"),
        (ended(ConditionType.SUCCEEDED, "Completed"), "it ended as None"),
        (ended(ConditionType.FAILED, "NoProgress", epoch=4), "epoch rose by 3, not 1"),
    ],
)
def test_a_job_that_rightly_fails_says_why(status: RLJobStatus, complaint: str) -> None:
    said = list(judge_end(FAILS, status))
    assert bool(said) is bool(complaint)
    assert complaint in "; ".join(said)
