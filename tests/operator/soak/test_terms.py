"""What a soak asks of a job at its end."""

from __future__ import annotations

from typing import Any

import pytest

from robustrl_api.status import Condition, ConditionType, RLJobStatus
from robustrl_operator.soak.terms import broken_at_end

STEPS = 12
GOAL = ("exact", 0.9)
TIME = "2026-11-21T09:00:00Z"


def status(succeeded: str = "True") -> RLJobStatus:
    said = Condition(
        type=ConditionType.SUCCEEDED, status=succeeded, reason="Done", message="", last_transition_time=TIME
    )
    return RLJobStatus(conditions=[said])


def ledger(exact: list[float], findings: tuple[str, ...] = ()) -> dict[str, Any]:
    curve = [{"step": step, "metrics": {"exact": value}} for step, value in enumerate(exact)]
    return {"audit": {"findings": [{"what": finding} for finding in findings]}, "curve": curve}


LEARNED = [0.0, 0.0, *[0.9] * 10]
UNMEASURED = {**ledger([]), "curve": [{"step": step, "metrics": {}} for step in range(STEPS)]}


def test_a_job_that_ended_as_it_should_breaks_nothing() -> None:
    assert list(broken_at_end(STEPS, status(), ledger(LEARNED), GOAL)) == []
    assert list(broken_at_end(STEPS, status(), ledger([0.0] * STEPS), None)) == []


@pytest.mark.parametrize(
    ("succeeded", "found", "words"),
    [
        ("False", ledger(LEARNED), "the job has not succeeded"),
        ("True", ledger(LEARNED, ("trained twice",)), "audit: trained twice"),
        ("True", ledger(LEARNED[1:]), "11 steps are committed, expected 12"),
        ("True", ledger([*LEARNED[:-1], 0.8]), "exact reached 0.890"),
        ("True", UNMEASURED, "exact reached nan"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_should_be_is_said(succeeded: str, found: dict[str, Any], words: str) -> None:
    (said,) = broken_at_end(STEPS, status(succeeded), found, GOAL)
    assert words in said
