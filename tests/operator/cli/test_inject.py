"""`robustrl inject`: what it lists, refuses and asks for, and how it tells what became of it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from lightkube import ApiError
from tests.operator.build import job
from tests.operator.cli.test_incidents import stored

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
from robustrl_operator.cli import inject
from robustrl_operator.cli.main import main
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.local.run_folder import RunFolder
from robustrl_operator.report import injection
from robustrl_operator.report.injection import QUIET_SECONDS, conclusion, lines

WHEN = "2026-11-21T09:00:0{}.000000Z"


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


def status(
    *incidents: Incident, deed: str = "Kill", stage: InjectionStage = InjectionStage.STRUCK, pods: int = 1
) -> RLJobStatus:
    made = InjectionStatus(
        id="r1", kind="worker", stage=stage, message="because", struck_time=WHEN.format(1),
        targets=tuple(InjectionTarget(pod=f"j-trainer-{n}", uid=f"u{n}", deed=deed) for n in range(1, pods + 1)),
    )  # fmt: skip
    return RLJobStatus(injection=made, incidents=incidents)


OVER = incident(reconnected_time=WHEN.format(4))


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
        (status(OVER), True),
        (status(OVER, stage=InjectionStage.STRIKING), None),
        (status(OVER, pods=2), None),
        (status(OVER, incident(), pods=2), None),
        (status(OVER, OVER, pods=2), True),
        (status(stage=InjectionStage.REFUSED), False),
        (status(stage=InjectionStage.FAILED), False),
        (status(deed="Slow"), None),
        (status(deed="StickExporters"), None),
    ],
)
def test_the_end_of_it(found: RLJobStatus, over: bool | None) -> None:
    end = conclusion(found, "r1", 0.0)
    assert (end[0] if end else None) is over


@pytest.mark.parametrize("deed", ["Slow", "StickExporters", "StorageFull"])
def test_what_is_no_fault_is_over_when_nothing_was_found_for_a_while(deed: str) -> None:
    end = conclusion(status(deed=deed), "r1", QUIET_SECONDS + 1)
    assert end is not None
    assert end[0]
    under_way = status(deed=deed, stage=InjectionStage.STRIKING)
    assert conclusion(under_way, "r1", QUIET_SECONDS + 1) is None, "exporters are wrong for as long"


def test_pods_that_failed_as_one_are_waited_for_no_longer_than_they_need_to_be_found() -> None:
    end = conclusion(status(OVER, pods=2), "r1", QUIET_SECONDS + 1)
    assert end is not None
    assert end[0]
    assert "2 pods were struck, 1 faults are on record" in end[1]


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def followed(monkeypatch: pytest.MonkeyPatch, *found: RLJobStatus | Exception) -> bool:
    """The last answer is given for ever."""
    monkeypatch.setattr(injection, "time", Clock())
    answers = list(found)

    def read() -> RLJobStatus:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return injection.follow(read, "r1", 600.0)


def test_an_api_server_that_is_away_for_a_while_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = injection.NotNow("connection refused")
    assert followed(monkeypatch, status(), away, away, status(OVER))
    said = capsys.readouterr()
    assert said.err.count("connection refused") == 1
    assert "over it" in said.out


def test_the_next_request_does_not_hide_what_becomes_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    others = status(OVER).model_copy(update={"injection": InjectionStatus(id="r2", stage=InjectionStage.STRUCK)})
    assert followed(monkeypatch, status(), others)


def test_a_request_that_nobody_takes_up_is_not_called_a_job_that_is_not_over_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not followed(monkeypatch, RLJobStatus())
    said = capsys.readouterr().out
    assert said.count(injection.NOT_TAKEN_UP) == 1
    assert "not taken up within 600 s" in said


@pytest.mark.parametrize(
    ("code", "details", "again"),
    [(500, {}, True), (429, {}, True), (404, {}, True), (404, {"name": "j"}, False), (403, {}, False)],
)
def test_which_errors_pass(code: int, details: dict[str, str], again: bool) -> None:
    class Refuses:
        def get(self, *_: object, **__: object) -> object:
            raise ApiError(response=httpx2.Response(code, json={"code": code, "message": "no", "details": details}))

    client: Any = Refuses()
    with pytest.raises(injection.NotNow if again else ApiError):
        inject._read_now(client, "j", "ns")


def test_a_target_that_is_too_long(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("worker", "x" * 300, "--out", str(out)) == 2
    assert "the target cannot be read" in capsys.readouterr().err


def test_a_job_that_ended_is_not_over_it() -> None:
    ended = Condition(type=ConditionType.FAILED, status=Truth.TRUE, reason="Spent", last_transition_time=WHEN.format(9))
    end = conclusion(status(incident()).model_copy(update={"conditions": (ended,)}), "r1", 0.0)
    assert end == (False, "the job has ended")


def test_a_job_of_somebody_else_that_cannot_be_read_is_no_reason_not_to_find_ones_own() -> None:
    jobs = [stored("bad", mode="Turbo"), stored("mine")]
    client: Any = SimpleNamespace(list=lambda *_, **__: iter(jobs))
    chosen = inject._choose(client, argparse.Namespace(job=None, namespace="ns"), "mine-rollout-1")
    assert chosen.metadata.name == "mine"
