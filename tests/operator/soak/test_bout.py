"""What a soak takes for a broken promise, and what not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from robustrl_api.names import Role
from robustrl_api.status import Incident, Scope
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.soak.bout import Life, Scene, Strike, incidents_at_least, judge
from robustrl_operator.soak.soak import STORM_ROWS
from robustrl_operator.soak.storm import Storm

LIVES = {
    "t0": Life("t0", Role.TRAINER, "a", ""),
    "r0": Life("r0", Role.ROLLOUT, "b", "1"),
    "m0": Life("m0", Role.MANAGER, "c", "1"),
}
BEFORE = Scene(epoch=1, attempt=0, step=5, lives=LIVES)
WORKER = next(row for row in STORM_ROWS if row.kind is FaultKind.WORKER)
ENGINE = next(row for row in STORM_ROWS if row.kind is FaultKind.ENGINE)


def incident(cause: str, rule: str) -> Incident:
    return Incident(
        role="trainer", pod="t0", cause=cause, decision=f"it (rule {rule})", scope=Scope.PROCESS, epoch=2, step=5,
        detected_time="2026-11-21T09:00:00Z",
    )  # fmt: skip


KILLED, ENDED = incident("WorkerExited", "2"), incident("EngineExited", "1")
AFTER = replace(BEFORE, epoch=2, step=8)
HIT = Strike(WORKER, frozenset({"t0"}))
ENGINE_HIT = Strike(ENGINE, frozenset({"r0"}))


def test_a_fault_that_was_answered_as_its_row_says_breaks_nothing() -> None:
    assert judge(BEFORE, AFTER, [HIT], [KILLED]) == ()


@pytest.mark.parametrize(
    ("after", "incidents", "words"),
    [
        (replace(AFTER, epoch=3), [KILLED], "the epoch rose by 2"),
        (replace(AFTER, attempt=1), [KILLED], "the whole job was restarted"),
        (replace(AFTER, step=5), [KILLED], "no step was made"),
        (AFTER, [], "0 incidents"),
        (AFTER, [KILLED, KILLED], "2 incidents"),
        (AFTER, [incident("NodeLost", "2")], "taken for NodeLost"),
        (AFTER, [incident("WorkerExited", "3")], "no incident was answered by rule 2"),
        (replace(AFTER, lives={"t0": LIVES["t0"], "m0": LIVES["m0"]}), [KILLED], "r0 was not hit and is gone"),
        (replace(AFTER, lives=LIVES | {"r0": replace(LIVES["r0"], boot="z")}), [KILLED], "its agent was restarted"),
        (replace(AFTER, lives=LIVES | {"r0": replace(LIVES["r0"], process="2")}), [KILLED], "process was restarted"),
        (replace(AFTER, lives=LIVES | {"t0": replace(LIVES["t0"], boot="z")}), [KILLED], "t0 was hit and its agent"),
        (replace(AFTER, lives={"r0": LIVES["r0"], "m0": LIVES["m0"]}), [KILLED], "t0 was hit and is gone"),
    ],
)  # fmt: skip
def test_every_broken_promise_is_found(after: Scene, incidents: list[Incident], words: str) -> None:
    found = judge(BEFORE, after, [HIT], incidents)
    assert any(words in finding for finding in found), found


def test_a_rollout_that_becomes_a_trainer_may_lose_its_engine() -> None:
    promoted = Life("r0", Role.TRAINER, "b", "")
    assert judge(BEFORE, replace(AFTER, lives=LIVES | {"r0": promoted}), [HIT], [KILLED]) == ()


def test_two_faults_of_trainers_may_restart_the_whole_job() -> None:
    other = Strike(WORKER, frozenset({"t1"}))
    anew = Scene(epoch=3, attempt=1, step=8, lives={"n0": Life("n0", Role.TRAINER, "x", "")})
    assert judge(BEFORE, anew, [HIT, other], [KILLED, KILLED]) == ()
    assert judge(BEFORE, anew, [HIT, ENGINE_HIT], [KILLED, ENDED]) != ()


def test_faults_of_trainers_may_be_one_incident_and_others_are_their_own() -> None:
    assert incidents_at_least([HIT, HIT], whole_job=False) == 1
    assert incidents_at_least([HIT, ENGINE_HIT], whole_job=False) == 2
    assert incidents_at_least([HIT, ENGINE_HIT], whole_job=True) == 1


def test_a_storm_is_its_seed_and_plays_every_row_before_any_again() -> None:
    one, other = Storm(STORM_ROWS, 3), Storm(STORM_ROWS, 3)
    drawn = [one.draw(lambda row: True) for _ in STORM_ROWS]
    assert drawn == [other.draw(lambda row: True) for _ in STORM_ROWS]
    assert {row.name for row in drawn if row} == {row.name for row in STORM_ROWS}
    assert one.gap_seconds() == other.gap_seconds()
    assert one.draw(lambda row: False) is None
