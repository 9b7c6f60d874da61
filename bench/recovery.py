"""Rows of the fault matrix on the development cluster: RoleBased beside WholeJob in the same run.

For each row the clock starts when the fault strikes (in the killed process's own pod, or at the call that cuts the
power or deletes the pod). Detection ends with the operator's verdict; "next step" with the commit of the next optimizer
step, as the ledger dates it. The job is the sort4 example with a smaller batch, so that two cores are not the limit.
Each fault strikes a job that has all its pods, all its engines admitted, and, where one is needed, its standby
loaded. Under RoleBased every row is checked as well: cause, rule, epoch, who restarted, and the audit of the ledger.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from robustrl_api.spec import Strategy
from robustrl_e2e import cluster, stack
from robustrl_e2e.cluster.errors import told
from robustrl_e2e.cluster_job import ClusterJob, sample
from robustrl_e2e.play import Outcome, play, play_to_the_end, settled
from robustrl_e2e.surroundings import Surroundings, shaped_job
from robustrl_operator.faults.matrix import MATRIX, Moment, Place, Row, Shape

STANDBY_SECONDS = 12.0
"""What a new rollout needs to load its standby on two cores shared by eight machines."""
MAX_STEPS = 100_000
NODES = 9
"""Two of them for managers and operators, so that a machine of theirs may die."""
USUAL = ("worker", "trainer-pod", "trainer", "rollout-pod")
TARGETS = {"worker": 1.0, "trainer-pod": 3.0, "trainer": 6.0}
"""Medians aimed at, in seconds (provenance: the project's own goals, not a measurement)."""
STRUCK_ONCE = frozenset({Shape.LINGERING, Shape.RAISING, Shape.FAILS_TO_RESTART})
"""Shapes of jobs that one row changes for good."""
AS_IF_THE_FIRST = {
    "budgets": {"jobRestarts": 1000},
    "backoff": {"baseDelaySeconds": 0},
    "suspicion": {"faults": 1000},
}
"""Dozens of faults strike the same few machines in turn, and none is to be paid for by the next."""
HANGS_ARE_FOUND_SOON = {
    "trainer": {"idleSeconds": 5},
    "rollout": {"zeroThroughputSeconds": 5},
    "manager": {"unansweredSeconds": 5},
    "probeSeconds": 2,
}
"""A row is to be measured in seconds, and the defaults take minutes to call a process hung."""


def main() -> int:
    there_are = {row.name: row for row in MATRIX if Place.CLUSTER in row.places}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="times that each fault strikes (default 5)")
    parser.add_argument("--rows", nargs="*", default=list(USUAL), metavar="ROW", help="rows of docs/faults.md, or all")
    parser.add_argument("--strategies", nargs="*", default=list(Strategy), type=Strategy, choices=list(Strategy))
    parser.add_argument("--name", default="robustrl", help="name of the cluster")
    parser.add_argument("--out", type=Path, default=Path("out/bench-recovery.json"))
    arguments = parser.parse_args()
    wanted = list(there_are) if arguments.rows == ["all"] else arguments.rows
    if unknown := set(wanted) - there_are.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(there_are)}")
    running = stack.bring_up(arguments.name, NODES)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    found: list[Outcome] = []
    for outcome in run(running, [there_are[name] for name in wanted], arguments.strategies, arguments.repeat):
        found.append(outcome)
        # As they come: what was measured is not lost with what comes after it.
        arguments.out.write_text(json.dumps([_record(each) for each in found], indent=1))
    print("\n" + table(found))
    return 1 if any(each.complaints for each in found) else 0


def run(
    running: cluster.Cluster, chosen: Sequence[Row], strategies: Sequence[Strategy], repeat: int
) -> Iterator[Outcome]:
    """Play every row under each strategy; rows that ask for the same shape strike one job as long as it lasts."""
    began = time.monotonic()
    played = [
        (strategy, shape, [row for row in chosen if row.shape is shape and compares(row, strategy)] * repeat)
        for strategy in strategies
        for shape in dict.fromkeys(row.shape for row in chosen)
    ]
    total = sum(len(rows) for _, _, rows in played)
    outcomes = itertools.chain.from_iterable(on_jobs_of(running, *each) for each in played)
    for done, outcome in enumerate(outcomes, start=1):
        print(f"[{done}/{total}, {time.monotonic() - began:4.0f} s] {line(outcome)}", flush=True)
        yield outcome


def compares(row: Row, strategy: Strategy) -> bool:
    """What is no fault of the job's restarts nothing under either strategy, and what restarts the whole job under one
    does so under the other."""
    return strategy is Strategy.ROLE_BASED or (row.incidents > 0 and not row.whole_job)


def on_jobs_of(running: cluster.Cluster, strategy: Strategy, shape: Shape, rows: Sequence[Row]) -> Iterator[Outcome]:
    """Play rows on jobs of a shape. One that is stuck or has ended is followed by another: the rest deserve a sound
    one."""
    waiting = deque(rows)
    while waiting:
        with shaped_job(running, manifest(strategy), shape) as (job, surroundings):
            sound = True
            while waiting and sound:
                outcome = attempt(job, waiting.popleft(), strategy, surroundings)
                sound = outcome.step_seconds is not None and shape not in STRUCK_ONCE
                yield outcome


def manifest(strategy: Strategy) -> dict[str, Any]:
    """A job whose step takes about a third of a second, so that what is measured is not the wait for a batch."""
    made = sample(
        "bench",
        steps=MAX_STEPS,
        recovery={"strategy": strategy.value, **AS_IF_THE_FIRST},
        detection=HANGS_ARE_FOUND_SOON,
        faultInjection={"mode": "Allowed"},
    )
    made["spec"]["data"] |= {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32}
    return made


def attempt(job: ClusterJob, row: Row, strategy: Strategy, surroundings: Surroundings) -> Outcome:
    """Play a row; a job that is not over it in time is a complaint."""
    try:
        if row.fails:
            return play_to_the_end(job, row)
        if row.moment is not Moment.FIRST_STEP:
            settled(job, STANDBY_SECONDS if row.needs_standby else 0.0)
        return play(job, row, surroundings)
    except (TimeoutError, RuntimeError, OSError, LookupError, cluster.ClusterError) as error:
        return Outcome(row, strategy, None, None, (f"{type(error).__name__}: {error}",))


def line(outcome: Outcome) -> str:
    """One outcome for people."""
    text = (
        f"{outcome.row.name:24s} {outcome.strategy:9s} detected {_seconds(outcome.detection_seconds)}, "
        f"next step {_seconds(outcome.step_seconds)}"
    )
    return text + "".join(f"\n    DOES NOT HOLD: {complaint}" for complaint in outcome.complaints)


def table(found: Sequence[Outcome]) -> str:
    """Medians and maxima of each row, and how many times slower WholeJob is."""
    head = (
        f"{'row':24s} {'detection':>10s} {'RoleBased median (max)':>24s} {'WholeJob median (max)':>24s} {'ratio':>7s}"
    )
    lines = [f"{head} {'aim':>5s}  holds"]
    for row in dict.fromkeys(each.row for each in found):
        mine = [each for each in found if each.row == row and each.strategy is Strategy.ROLE_BASED]
        by_role, whole = _times(mine), _times(each for each in found if each.row == row and each not in mine)
        ratio = f"{statistics.median(whole) / statistics.median(by_role):6.1f}x" if by_role and whole else "-"
        aim = f"{TARGETS[row.name]:.0f} s" if row.name in TARGETS else "-"
        detections = [each.detection_seconds for each in mine if each.detection_seconds is not None]
        detection = _seconds(statistics.median(detections) if detections else None)
        holds = "no" if any(each.complaints for each in mine) else "yes"
        times = f"{_summary(by_role):>24s} {_summary(whole):>24s} {ratio:>7s}"
        lines.append(f"{row.name:24s} {detection:>10s} {times} {aim:>5s}  {holds}")
    return "\n".join(lines)


def _record(outcome: Outcome) -> dict[str, object]:
    return {
        "strategy": outcome.strategy,
        "row": outcome.row.name,
        "detectionSeconds": outcome.detection_seconds,
        "seconds": outcome.step_seconds,
        "complaints": outcome.complaints,
    }


def _times(outcomes: Iterable[Outcome]) -> list[float]:
    return [each.step_seconds for each in outcomes if each.step_seconds is not None]


def _summary(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} s ({max(times):.2f} s)" if times else "-"


def _seconds(seconds: float | None) -> str:
    return f"{seconds:.2f} s" if seconds is not None else "-"


if __name__ == "__main__":
    sys.exit(told(main))
