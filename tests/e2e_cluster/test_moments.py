"""The moment at which a fault strikes, as the managers' words show it."""

from __future__ import annotations

from typing import Any

import pytest

from robustrl_e2e.moments import whom
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.faults.matrix import Moment, Row

PLAYING = ["r0", "r1", "r2"]
NEW, OLD = "1.5", "1.4"


def engine(pod: str, state: str, version: str = OLD) -> dict[str, Any]:
    return {"pod": pod, "state": state, "version": version}


def said(*engines: dict[str, Any], step: int = 5, version: str = NEW) -> dict[str, Any]:
    return {"step": step, "version": version, "engines": list(engines)}


IDLE = engine("r0", "Admitted", NEW)
PULLS = engine("r1", "Pulling")


@pytest.mark.parametrize(
    ("moment", "words", "wanted"),
    [
        pytest.param(Moment.PULL, said(IDLE, PULLS), 1, id="the one that pulls"),
        pytest.param(Moment.PULL, said(IDLE), None, id="nobody pulls"),
        pytest.param(Moment.PULL, said(engine("r1", "Pulling", "")), None, id="the first weights do not count"),
        pytest.param(Moment.PULL, said(engine("gone", "Pulling")), None, id="one that plays no rollout any more"),
        pytest.param(Moment.RELAY, said(IDLE, PULLS), 0, id="the one that has what another pulls"),
        pytest.param(Moment.RELAY, said(PULLS), None, id="nobody else has it"),
        pytest.param(Moment.RELAY, said(IDLE), None, id="nobody pulls it"),
        pytest.param(Moment.PUBLISH, said(step=6), 2, id="a step whose weights are not announced"),
        pytest.param(Moment.PUBLISH, said(step=5), None, id="the weights of each step are announced"),
        pytest.param(Moment.PUBLISH, said(step=1, version=""), None, id="none were ever announced"),
    ],
)
def test_whom_a_fault_strikes_and_whether_it_is_the_moment(
    moment: Moment, words: dict[str, Any], wanted: int | None
) -> None:
    row = Row(FaultKind.ROLLOUT, "dead", moment=moment, index=2)
    assert whom(row, words, PLAYING) == wanted
