"""`robustrl run rljob.yaml`: the job as processes on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from robustrl.audit import report as ledger_report
from robustrl.audit.record import BadLedger
from robustrl_api.status import ConditionType, holds
from robustrl_operator.cli import out_folder, positive, stopping
from robustrl_operator.cli.manifest import BadManifest, read_job
from robustrl_operator.faults.kind import Fault, FaultKind
from robustrl_operator.faults.matrix import MATRIX, Place
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder, enter
from robustrl_operator.report import live, summary

KINDS = tuple(kind for kind in FaultKind if any(row.kind is kind and Place.LOCAL in row.places for row in MATRIX))
"""What can be done to processes on this machine."""


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("run", help="run an RLJob as processes on this machine", description=__doc__)
    parser.add_argument("manifest", type=Path, help="file with the RLJob")
    parser.add_argument(
        "--fault", action="append", default=[], type=_fault, metavar="KIND@STEP",
        help=f"strike once STEP steps are committed; repeatable; kinds: {', '.join(KINDS)}",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder for ledger, checkpoints, logs and report")
    parser.add_argument("--steps", type=positive.whole, help="instead of spec.steps")
    parser.set_defaults(handle=handle)


def _fault(text: str) -> Fault:
    try:
        fault = Fault.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if fault.kind not in KINDS:
        raise argparse.ArgumentTypeError(f"{fault.kind} needs a cluster; kinds of faults here: {', '.join(KINDS)}")
    return fault


def handle(arguments: argparse.Namespace) -> int:
    """Run the job; exit status 0 when it succeeded."""
    try:
        job = read_job(arguments.manifest)
    except BadManifest as error:
        print(f"robustrl: {error}", file=sys.stderr)
        return 2
    if arguments.steps is not None:
        job = job.model_copy(update={"spec": job.spec.model_copy(update={"steps": arguments.steps})})
    out = out_folder.begin(arguments.out, job.metadata.name)
    # The example's modules and its script are found as they would be in the image's working directory.
    enter(arguments.manifest.resolve().parent)
    return stopping.run(_run(LocalRun(job, out, arguments.fault)))


async def _run(run: LocalRun) -> int:
    async with run.started():
        await live.follow(run.timeline, run.job, run.until_ended())
    summary.conclude(run.timeline, run.job, run.status, run.folder, _audited(RunFolder(run.folder).ledger))
    return 0 if holds(run.status, ConditionType.SUCCEEDED) else 1


def _audited(ledger: Path) -> dict[str, Any] | None:
    """What the ledger proves; None where managers never came to work with it, or it cannot be read."""
    if not ledger.exists():
        return None
    try:
        return ledger_report.read(ledger)
    except BadLedger as error:
        print(f"robustrl: {error}", file=sys.stderr)
        return None
