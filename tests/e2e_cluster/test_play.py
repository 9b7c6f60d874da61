"""What is counted as the times of a fault that was played."""

from __future__ import annotations

from dataclasses import replace

import pytest

from robustrl_api.status import Incident, Scope
from robustrl_e2e.play import times_of
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
