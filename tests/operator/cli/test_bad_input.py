"""What cannot be is refused with a sentence, before anything begins."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from robustrl_operator.cli import run
from robustrl_operator.cli.main import main

BAD_INPUT_STATUS = 2


@pytest.mark.parametrize(
    "words",
    [
        ["run", "j.yaml", "--steps", "0"],
        ["run", "j.yaml", "--steps", "-5"],
        ["run", "j.yaml", "--steps", "many"],
        ["soak", "j.yaml", "--gap", "0"],
        ["soak", "j.yaml", "--gap", "-3"],
        ["soak", "j.yaml", "--minutes", "nan"],
        ["soak", "j.yaml", "--minutes", "inf"],
    ],
    ids=" ".join,
)
def test_numbers_that_no_run_can_have(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == BAD_INPUT_STATUS
    assert f"{words[-1]!r}: expected a" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["trainer-drain", "operators", "gpu"])
def test_faults_that_need_a_cluster(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The run would go on without them, or with another fault in their place, and be said to have survived."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "j.yaml", "--fault", f"{kind}@5"])
    assert ended.value.code == BAD_INPUT_STATUS
    assert f"{kind} needs a cluster" in capsys.readouterr().err


def test_a_file_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.bin").write_bytes(b"\x80\xff\x00")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "model.bin")])
    assert ended.value.code == BAD_INPUT_STATUS
    assert "model.bin is not YAML" in capsys.readouterr().err


def test_a_ledger_that_no_managers_worked_with_does_not_hide_why_the_job_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sqlite3.connect(tmp_path / "ledger.sqlite").close()
    (tmp_path / "ledger.sqlite").touch()
    assert run._audited(tmp_path / "ledger.sqlite") is None
    assert "cannot be read as a ledger" in capsys.readouterr().err
