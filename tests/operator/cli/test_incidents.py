"""`robustrl incidents`, on the folder of a local run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.operator.kubernetes.test_jobs import STORED

from robustrl_api.status import Incident, RLJobStatus, Scope
from robustrl_operator.cli import incidents
from robustrl_operator.cli.main import main

INCIDENT = Incident(role="rollout", pod="j-rollout-4", cause="PodDeleted", decision="replace the pod (rule 1)",
                    scope=Scope.POD, epoch=1, step=7, detected_time="2026-11-21T09:00:03.100000Z")  # fmt: skip


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "status.json").write_text(RLJobStatus(incidents=(INCIDENT,)).model_dump_json(by_alias=True))
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["incidents", *arguments])
    return int(ended.value.code or 0)


def test_for_people(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", str(out)) == 0
    assert "j-rollout-4" in capsys.readouterr().out


def test_for_programs(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", str(out), "--json") == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["pod"], record["stageSeconds"]) == ("j-rollout-4", {"detected": 0.0})


def test_a_folder_of_no_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", str(tmp_path)) == 1
    assert "status.json" in capsys.readouterr().err


def stored(name: str, **spec: Any) -> Any:
    fields = {**STORED, "metadata": {"name": name, "namespace": "ns"}, "spec": {**STORED["spec"], **spec}}
    return SimpleNamespace(metadata=SimpleNamespace(name=name), to_dict=lambda: fields)


def test_one_job_that_cannot_be_read_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [stored("good"), stored("bad", mode="Turbo"), stored("fine")]
    monkeypatch.setattr(incidents, "sync_client", lambda: SimpleNamespace(list=lambda *_, **__: iter(jobs)))
    assert run() == 0
    said = capsys.readouterr()
    assert "ns/good" in said.out
    assert "ns/fine" in said.out
    assert "RLJob bad cannot be read" in said.err
