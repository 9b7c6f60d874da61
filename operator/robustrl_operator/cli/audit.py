"""`robustrl audit JOB`: proves that each trajectory was trained on exactly once; with --replay, trains it all again.

Exit status: 0 nothing found, 1 findings, 2 the audit itself was not possible.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import httpx2
from lightkube import ApiError
from lightkube.core.exceptions import ConfigError

from robustrl.audit import copies, record, replay, report
from robustrl.audit.record import BadLedger, Record
from robustrl.audit.replay import CannotReplay
from robustrl.audit.report import Report
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.job import RLJob
from robustrl_api.version import Version
from robustrl_operator.cli import stopping
from robustrl_operator.cli.manifest import BadManifest, read_job
from robustrl_operator.kubernetes import ledger_copy
from robustrl_operator.kubernetes.ledger_copy import DOWNLOAD_SECONDS, NoManagers
from robustrl_operator.local.replay import hand_over_checkpoint, train_again
from robustrl_operator.local.run_folder import BadRun, RunFolder, enter, find


@dataclass(frozen=True, slots=True)
class Subject:
    """What is audited; the run where it is one of this machine."""

    ledger: Path
    checkpoints: Shelf | None
    run: RunFolder | None = None


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("audit", help="prove that each trajectory was trained once", description=__doc__)
    parser.add_argument(
        "job", nargs="?",
        help="folder of a run on this machine (robustrl run), or a job's name: of its newest run here, else on the "
        "cluster",
    )  # fmt: skip
    parser.add_argument("-n", "--namespace", help="the job is on the cluster, in this namespace")
    parser.add_argument("--ledger", help="instead: a ledger file, or the managers' URL of it (http://.../v1/ledger)")
    parser.add_argument("--checkpoints", type=Path, help="folder of the job's storage, where it is not of a run here")
    parser.add_argument("--manifest", type=Path, help="with --replay, likewise: the RLJob's file, beside its code")
    parser.add_argument("--replay", action="store_true", help="train on the recorded batches again and compare digests")
    parser.add_argument(
        "--from-step", type=int, metavar="N", help="begin the replay with the checkpoint of N steps (default: earliest)"
    )
    parser.add_argument("--out", type=Path, help="folder of the replay (default: a temporary one, kept if it fails)")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(handle=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Print the report."""
    try:
        with _subject(arguments) as subject:
            on_storage = subject.checkpoints.versions() if subject.checkpoints else []
            found = record.read(subject.ledger)
            result = _proved(found, subject, on_storage)
            if arguments.replay:
                result = _replayed(arguments, subject, found, result)
    except (BadLedger, BadRun, BadManifest, CannotReplay, HTTPException, OSError, ValueError) as error:
        print(f"robustrl: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report.as_json(result), indent=1) if arguments.output == "json" else report.as_text(result))
    return 0 if result.ok else 1


@contextlib.contextmanager
def _subject(arguments: argparse.Namespace) -> Iterator[Subject]:
    if not (arguments.ledger or arguments.job):
        raise BadRun("give a job's folder or name, or --ledger")
    run = None if arguments.ledger or arguments.namespace else find(arguments.job)
    if run is not None:
        yield Subject(run.ledger, Shelf(run.checkpoints, keep=0) if run.checkpoints.is_dir() else None, run)
        return
    shelf = _storage(arguments.checkpoints) if arguments.checkpoints else None
    if arguments.ledger and not arguments.ledger.startswith(("http://", "https://")):
        yield Subject(Path(arguments.ledger).resolve(), shelf)
        return
    with tempfile.TemporaryDirectory(prefix="robustrl-audit-") as folder:
        copy = Path(folder) / "ledger.sqlite"
        if arguments.ledger:
            _download(arguments.ledger, copy)
        else:
            _fetch(arguments.job, arguments.namespace, copy)
        yield Subject(copy, shelf)


def _fetch(job: str, namespace: str | None, copy: Path) -> None:
    """From the cluster.

    Raises:
        BadRun: not from there either.
    """
    here = "" if namespace else f"{job} is no folder of a run, out/{job}-* has none, and "
    if "/" in job:
        raise BadRun(f"{here}no RLJob has such a name")
    try:
        ledger_copy.fetch(job, namespace, copy)
    except (ApiError, ConfigError, NoManagers, httpx2.HTTPError) as error:
        raise BadRun(f"{here}it is not to be had from a cluster: {error}") from error


def _storage(path: Path) -> Shelf:
    if not path.is_dir():
        raise BadRun(f"{path} is no folder; give the folder that spec.checkpoint.storage names")
    return Shelf(path.resolve(), keep=0)


def _download(url: str, target: Path) -> None:
    with urllib.request.urlopen(url, timeout=DOWNLOAD_SECONDS) as response, target.open("wb") as file:
        shutil.copyfileobj(response, file)


def _proved(found: Record, subject: Subject, on_storage: Sequence[Version]) -> Report:
    return report.of(found, copies.check(found, subject.checkpoints, on_storage) if subject.checkpoints else None)


def _replayed(arguments: argparse.Namespace, subject: Subject, found: Record, result: Report) -> Report:
    """The report with the replay's outcome. The replay's folder is kept where it was asked for."""
    job, code = _started_as(arguments, subject)
    first = replay.choose_start(result) if arguments.from_step is None else arguments.from_step
    with _workplace(arguments.out) as folder:
        recorded = replay.prepare(subject.ledger, folder.ledger, first)
        if first:
            _begin_with(found, first, subject.checkpoints, folder)
        enter(code)
        print(f"training steps {first} to {recorded[-1].step} again in {folder.root}", file=sys.stderr, flush=True)
        return replay.concluded(result, recorded, stopping.run(train_again(job, recorded, folder.root)))


def _started_as(arguments: argparse.Namespace, subject: Subject) -> tuple[RLJob, Path]:
    """The job, and the folder of its code."""
    if arguments.manifest:
        return read_job(arguments.manifest), arguments.manifest.resolve().parent
    if subject.run is None:
        raise BadRun("a replay needs the job: give --manifest, the RLJob's file in the folder of its code")
    return subject.run.description()


@contextlib.contextmanager
def _workplace(out: Path | None) -> Iterator[RunFolder]:
    """The replay's folder. One that nobody asked for is removed, unless the replay failed: its logs say why."""
    if out is not None:
        out.mkdir(parents=True)
        yield RunFolder(out.resolve())
        return
    folder = Path(tempfile.mkdtemp(prefix="robustrl-replay-"))
    yield RunFolder(folder)
    shutil.rmtree(folder)


def _begin_with(found: Record, first: int, source: Shelf | None, folder: RunFolder) -> None:
    commit = next((each for each in found.commits if each.step == first - 1), None)
    if source is None or commit is None:
        raise CannotReplay(f"the checkpoint of {first} steps is needed, and no storage was given: --checkpoints")
    hand_over_checkpoint(commit, source, Shelf(folder.checkpoints, keep=0))
