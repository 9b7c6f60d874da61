"""`robustrl inject`: what it lists, refuses and asks for, and how it tells what became of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.operator.build import job

from robustrl_api.job import ObjectMeta, RLJob
from robustrl_api.status import (
    Condition,
    ConditionType,
    Incident,
    InjectionStage,
    InjectionStatus,
    InjectionTarget,
    RLJobStatus,
    Scope,
    Truth,
)
from robustrl_operator.cli.main import main
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.local.run_folder import RunFolder
from robustrl_operator.report.injection import QUIET_SECONDS, conclusion, lines

WHEN = "2026-11-21T09:00:0{}.000000Z"
NOW = datetime(2026, 11, 21, 9, 0, 10, tzinfo=UTC).timestamp()


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["inject", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    spec = job(faultInjection={"mode": "Allowed"})
    RunFolder(tmp_path).describe(RLJob(metadata=ObjectMeta(name="j"), spec=spec), tmp_path)
    return tmp_path


def test_all_kinds_are_listed_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    listed = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in listed] == list(FaultKind)
    assert all(len(line.split()) > 3 for line in listed)


def test_a_wrong_kind_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("wroker") == 2
    said = capsys.readouterr().err
    assert "'wroker'" in said
    assert "worker-hang" in said


def test_a_request_lies_where_the_run_finds_it(out: Path) -> None:
    assert run("worker", "rank", "1", "--out", str(out), "--no-wait") == 0
    request = json.loads(RunFolder(out).request.read_text())
    assert (request["kind"], request["target"]) == ("worker", "rank 1")
    assert request["id"]


def test_a_job_that_does_not_allow_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder(tmp_path).describe(RLJob(metadata=ObjectMeta(name="j"), spec=job()), tmp_path)
    assert run("worker", "--out", str(tmp_path)) == 2
    assert "spec.faultInjection.mode" in capsys.readouterr().err
    assert not RunFolder(tmp_path).request.exists()


def test_no_folder_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("worker", "--out", str(tmp_path)) == 2
    assert "run.json is missing" in capsys.readouterr().err


def incident(**fields: str) -> Incident:
    return Incident(
        role="trainer", pod="j-trainer-1", cause="WorkerExited", evidence="killed by signal 9", injection="r1",
        decision="restart (rule 2)", scope=Scope.PROCESS, epoch=2, step=7, fault_time=WHEN.format(1),
        detected_time=WHEN.format(2), **fields,
    )  # fmt: skip


def status(*incidents: Incident, deed: str = "Kill", stage: InjectionStage = InjectionStage.STRUCK) -> RLJobStatus:
    injection = InjectionStatus(
        id="r1", kind="worker", stage=stage, message="because", struck_time=WHEN.format(1),
        targets=(InjectionTarget(pod="j-trainer-1", uid="u", deed=deed),),
    )  # fmt: skip
    return RLJobStatus(injection=injection, incidents=incidents)


def test_each_stage_is_told() -> None:
    told = "\n".join(lines(status(incident(restored_time=WHEN.format(3))), "r1"))
    for words in ("strikes j-trainer-1", "struck", "detected after 1.00 s: WorkerExited: killed by", "rule 2",
                  "restored after 2.00 s"):  # fmt: skip
        assert words in told
    assert list(lines(status(), "another")) == []


@pytest.mark.parametrize(
    ("found", "over"),
    [
        (RLJobStatus(), None),
        (status(stage=InjectionStage.STRIKING), None),
        (status(), None),
        (status(incident()), None),
        (status(incident(reconnected_time=WHEN.format(4))), True),
        (status(stage=InjectionStage.REFUSED), False),
        (status(stage=InjectionStage.FAILED), False),
        (status(deed="Slow"), None),
    ],
)
def test_the_end_of_it(found: RLJobStatus, over: bool | None) -> None:
    end = conclusion(found, "r1", NOW)
    assert (end[0] if end else None) is over


def test_what_only_slows_is_over_when_nothing_was_found_for_a_while() -> None:
    end = conclusion(status(deed="Slow"), "r1", NOW + QUIET_SECONDS)
    assert end is not None
    assert end[0]


def test_a_job_that_ended_is_not_over_it() -> None:
    ended = Condition(type=ConditionType.FAILED, status=Truth.TRUE, reason="Spent", last_transition_time=WHEN.format(9))
    end = conclusion(status(incident()).model_copy(update={"conditions": (ended,)}), "r1", NOW)
    assert end == (False, "the job has ended")
