"""`robustrl audit`: exit statuses, and errors that say what to do. Replays that train are in tests/local."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import socketserver
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.test_checkpoint import made
from tests.managers.test_ledger import ready_group
from tests.operator.build import job

from robustrl.audit import snapshot
from robustrl.checkpoint.shelf import Shelf
from robustrl.managers import batches
from robustrl.managers.schema import SCHEMA
from robustrl_api.job import ObjectMeta, RLJob
from robustrl_api.version import Version
from robustrl_operator.cli.main import main

STEPS = 3
Audit = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever runs the tests may have one."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))


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
    with serving(functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))) as url:
        yield url


@contextlib.contextmanager
def serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
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


def test_a_ledger_of_a_newer_release_is_named(audit: Audit, folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite")) as db:
        db.execute("PRAGMA user_version = 99")
    status, _, complaint = audit(folder)
    assert status == 2
    assert f"{folder / 'ledger.sqlite'} has schema version 99" in complaint


def test_findings_are_one(audit: Audit, folder: Path) -> None:
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        db.execute("DELETE FROM commits WHERE step = 1")
    status, text, _ = audit(folder)
    assert status == 1
    assert "MissingStep  step 1 was never committed" in text


class Other(socketserver.BaseRequestHandler):
    """A server that speaks something else."""

    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-other\r\n")


def test_an_address_at_which_nobody_speaks_http_is_no_finding(audit: Audit) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        status, _, error = audit("--ledger", f"http://127.0.0.1:{server.server_address[1]}/v1/ledger")
        thread.join()
    assert status == 2
    assert "SSH-2.0" in error


class Cluster(http.server.BaseHTTPRequestHandler):
    """An API server that knows one job, whose second manager alone hands out the ledger."""

    ledger: bytes
    PROXY = "/api/v1/namespaces/rl/pods/sort4-manager-{}:8300/proxy/v1/ledger"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        managers = [{"metadata": {"name": f"sort4-manager-{n}", "namespace": "rl"}} for n in (7, 0)]
        found: dict[str, object] = {
            "/apis/robustrl.dev/v1alpha1/namespaces/rl/rljobs/sort4": RLJob(
                metadata=ObjectMeta(name="sort4", namespace="rl"), spec=job()
            ).wire(),
            "/apis/robustrl.dev/v1alpha1/namespaces/rl/rljobs/over": RLJob(
                metadata=ObjectMeta(name="over", namespace="rl"), spec=job()
            ).wire(),
            "/api/v1/namespaces/rl/pods": {"items": managers if "sort4" in self.path else []},
        }
        if path == self.PROXY.format(7):
            self._answer(200, "application/vnd.sqlite3", self.ledger)
        elif path in found:
            self._answer(200, "application/json", json.dumps(found[path]).encode())
        else:
            self._answer(404, "application/json", b'{"kind": "Status", "code": 404, "message": "not found"}')

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def cluster(folder: Path, no_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the kubeconfig names; the run of this machine is not where its name would find it."""
    Cluster.ledger = (folder / "ledger.sqlite").read_bytes()
    folder.rename(tmp_path / "elsewhere")
    with serving(Cluster) as url:
        user = {"name": "me", "user": {"token": "t"}}
        context = {"name": "here", "context": {"cluster": "c", "user": "me", "namespace": "rl"}}
        config = {"current-context": "here", "contexts": [context], "users": [user],
                  "clusters": [{"name": "c", "cluster": {"server": url}}]}  # fmt: skip
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield


@pytest.mark.usefixtures("cluster")
def test_a_ledger_is_fetched_from_the_cluster_by_the_jobs_name(audit: Audit, tmp_path: Path) -> None:
    for arguments in (["sort4"], ["sort4", "-n", "rl"]):
        status, text, err = audit(*arguments)
        assert status == 0, err
        assert "3 steps (epoch 1: 0-2)" in text
    status, text, _ = audit("sort4", "--checkpoints", tmp_path / "elsewhere/checkpoints")
    assert "on storage and as committed: 1.1, 1.2, 1.3" in text


@pytest.mark.usefixtures("cluster")
def test_what_the_cluster_does_not_give_is_two_and_says_why(audit: Audit) -> None:
    for arguments, words in (
        (["over"], "it has no manager pod, so it has ended or is suspended); mount its volume"),
        (["nothing"], "not found"),
        (["out/nothing"], "no RLJob has such a name"),
        (["sort4", "--replay"], "give --manifest"),
    ):
        status, text, err = audit(*arguments)
        assert (status, text) == (2, ""), arguments
        assert words in err, arguments


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
        (["nothing"], "out/nothing-* has none, and it is not to be had from a cluster"),
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
