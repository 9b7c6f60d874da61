"""`robustrl audit`: exit statuses, and errors that say what to do. Replays that train are in tests/local."""

from __future__ import annotations

import functools
import http.server
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.test_checkpoint import made
from tests.managers.test_ledger import ready_group

from robustrl.audit import snapshot
from robustrl.checkpoint.shelf import Shelf
from robustrl.managers import batches
from robustrl.managers.ledger import SCHEMA
from robustrl_api.version import Version
from robustrl_operator.cli.main import main

STEPS = 3
Audit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Audit:
    """Runs the command in a folder; exit status, what it printed, what it complained about."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["audit", *map(str, arguments)])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a run of three steps left."""
    root = tmp_path / "out" / "sort4-20260101-120000"
    storage = Shelf(root / "checkpoints", keep=0)
    storage.root.mkdir(parents=True)
    db = sqlite3.connect(root / "ledger.sqlite")
    db.executescript(SCHEMA)
    db.execute("INSERT INTO meta VALUES ('samples_per_prompt', '2')")
    for step in range(STEPS):
        ready_group(db, step)
        batch = batches.lease(db, 1, step, 1)
        assert batch is not None
        digests = {"0": made(storage, Version(1, step + 1), content=b"state %d" % step)}
        batches.commit(
            db, epoch=1, step=step, batch=batch, digests=digests, metrics={}, now=1.0, keep_batches=5
        )  # fmt: skip
    db.commit()
    db.close()
    return root


@pytest.fixture
def served(folder: Path) -> Iterator[str]:
    """The folder's address on this machine."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_clean_job_is_zero_and_a_table(audit: Audit, folder: Path) -> None:
    status, text, _ = audit(folder)
    assert status == 0
    assert "3 steps (epoch 1: 0-2)" in text
    assert "on storage and as committed: 1.1, 1.2, 1.3" in text
    assert "trained on exactly once" in text


def test_the_newest_run_is_found_by_the_jobs_name(audit: Audit, folder: Path) -> None:
    (folder.parent / "sort4-20990101-120000").mkdir()
    status, text, _ = audit("sort4", "--output", "json")
    assert status == 0
    assert json.loads(text)["steps"] == STEPS


def test_findings_are_one(audit: Audit, folder: Path) -> None:
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        db.execute("DELETE FROM commits WHERE step = 1")
    status, text, _ = audit(folder)
    assert status == 1
    assert "MissingStep  step 1 was never committed" in text


def test_a_ledger_is_fetched_from_the_managers(audit: Audit, folder: Path, served: str) -> None:
    status, text, _ = audit("--ledger", f"{served}/ledger.sqlite", "--checkpoints", folder / "checkpoints")
    assert status == 0
    assert "1.3" in text
    status, text, _ = audit("--ledger", f"{served}/ledger.sqlite")
    assert status == 0
    assert "checkpoints   not looked at" in text


def test_what_cannot_be_audited_is_two_and_says_what_to_do(audit: Audit, folder: Path, served: str) -> None:
    ledger = folder / "ledger.sqlite"
    (folder / "broken.sqlite").write_bytes(ledger.read_bytes()[:5000])
    snapshot.take(ledger, folder.parent / "alone.sqlite")
    for arguments, words in (
        ([], "give a job's folder or name, or --ledger"),
        (["nothing"], "out/nothing-* has none"),
        (["--ledger", folder / "absent"], "does not exist"),
        (["--ledger", folder / "broken.sqlite"], "copy it again"),
        (["--ledger", f"{served}/absent"], "404"),
        (["--ledger", "http://127.0.0.1:9/v1/ledger"], "refused"),
        (["--ledger", ledger, "--checkpoints", folder / "absent"], "spec.checkpoint.storage"),
        (["--ledger", ledger, "--replay"], "give --manifest"),
        (["--ledger", ledger, "--replay", "--manifest", folder / "absent"], "absent"),
        ([folder, "--replay"], "run.json is missing"),
    ):
        status, text, err = audit(*arguments)
        assert (status, text) == (2, ""), arguments
        assert words in err, arguments
