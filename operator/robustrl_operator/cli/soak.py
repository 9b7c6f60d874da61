"""`robustrl soak rljob.yaml`: the job as processes on this machine under random faults, and whether they mattered."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from robustrl.audit import report
from robustrl.audit.record import BadLedger
from robustrl_api.job import RLJob
from robustrl_api.status import RLJobStatus
from robustrl_operator.cli import out_folder, positive, stopping
from robustrl_operator.cli.manifest import BadManifest, read_job
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder, enter
from robustrl_operator.report import summary
from robustrl_operator.report.curve import LAST_STEPS
from robustrl_operator.soak.soak import STORM_ROWS, Outcome, Soak, Stuck
from robustrl_operator.soak.storm import MEAN_GAP_SECONDS, Storm
from robustrl_operator.soak.terms import braced, broken_at_end

STEPS_A_MINUTE = 30
"""What two cores make of the example through faults twice a minute. A slower machine takes longer, not less."""


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("soak", help="run an RLJob here under random faults and judge it", description=__doc__)
    parser.add_argument("manifest", type=Path, help="file with the RLJob")
    parser.add_argument(
        "--minutes", type=positive.number, default=5,
        help=f"how long, as {STEPS_A_MINUTE} steps of the job a minute (5)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="of the faults; a new one if nothing is said")
    parser.add_argument(
        "--gap", type=positive.number, default=MEAN_GAP_SECONDS, metavar="SECONDS", help="mean time between faults (30)"
    )
    parser.add_argument(
        "--reach", type=_goal, metavar="METRIC=VALUE",
        help=f"what the job's metric must reach at least, as the mean of its last {LAST_STEPS} steps",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder for ledger, checkpoints, logs and report")
    parser.set_defaults(handle=handle)


def _goal(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected METRIC=VALUE, such as exact=0.9") from None


def handle(arguments: argparse.Namespace) -> int:
    """Run the job through the storm; exit status 0 when every promise was kept."""
    try:
        job = read_job(arguments.manifest)
    except BadManifest as error:
        print(f"robustrl: {error}", file=sys.stderr)
        return 2
    out = out_folder.begin(arguments.out, "soak")
    enter(arguments.manifest.resolve().parent)
    seed = random.randrange(2**31) if arguments.seed is None else arguments.seed
    steps = max(1, round(arguments.minutes * STEPS_A_MINUTE))
    print(f"seed {seed}, {steps} steps, faults {arguments.gap:.0f} s apart on the mean; files: {out}", flush=True)
    findings = stopping.run(soak(braced(job, steps), out, Storm(STORM_ROWS, seed, arguments.gap), arguments.reach))
    return 1 if findings else 0


async def soak(job: RLJob, out: Path, storm: Storm, goal: tuple[str, float] | None = None) -> list[str]:
    """Run a job through a storm, printing what happens; the promises that were broken, in words."""
    stuck: list[str] = []
    async with LocalRun(job, out).started() as run:
        weather = Soak(run, storm, lambda line: print(line, flush=True))
        try:
            await weather.blow()
        except Stuck as error:
            stuck.append(str(error))
        status = run.status
    try:
        ledger = report.read(RunFolder(out).ledger)
        proved, broken = summary.ledger_lines(ledger), list(broken_at_end(job.spec.steps, status, ledger, goal))
    except BadLedger as error:
        proved, broken = [], [str(error)]
    findings = [*weather.outcome.findings, *stuck, *broken]
    files = summary.keep(run.timeline, job, out)
    print("\n".join([_storm_line(weather.outcome, status), *proved, files, *_verdict(findings)]))
    return findings


def _storm_line(outcome: Outcome, status: RLJobStatus) -> str:
    struck = ", ".join(f"{name} {count}" for name, count in sorted(outcome.struck.items()))
    after = f"epoch {status.epoch}, the whole job restarted {status.attempt} times"
    together = f"{outcome.together} of them before the job was over another"
    return f"{outcome.struck.total()} faults ({struck}), {together}; {after}"


def _verdict(findings: list[str]) -> list[str]:
    return [f"BROKEN: {finding}" for finding in findings] or ["every promise was kept"]
