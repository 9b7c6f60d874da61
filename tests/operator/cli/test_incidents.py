"""`robustrl incidents`, on the folder of a local run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robustrl_api.status import Incident, RLJobStatus, Scope
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
