"""Fault to next optimizer step, on the development cluster: RoleBased beside WholeJob in the same run.

For each fault the clock starts when it strikes (in the killed process's own pod, or at the call that cuts the power or
deletes the pod) and stops at the commit of the next optimizer step, as the ledger dates it. The job is the sort4
example with a smaller batch, so that two cores are not the limit. Each fault strikes a job that has all its pods,
all its engines admitted, and its standby loaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustrl_api.names import Role
from robustrl_api.status import has_ended
from robustrl_e2e import cluster, faults, stack
from robustrl_e2e.cluster_job import ClusterJob, sample

SETTLE_STEPS = 5
STANDBY_SECONDS = 12.0
"""What a new rollout needs to load its standby on two cores shared by eight machines."""
DEADLINE_SECONDS = 300.0
MAX_STEPS = 100_000
TARGETS = {"worker": 1.0, "trainer-pod": 3.0, "trainer-node": 6.0}
"""Medians aimed at, in seconds (provenance: the project's own goals, not a measurement)."""


@dataclass(frozen=True)
class Measurement:
    strategy: str
    fault: str
    seconds: float


STRIKES: dict[str, Callable[[ClusterJob], float]] = {
    "worker": faults.kill_worker,
    "trainer-pod": faults.delete_trainer,
    "trainer-node": faults.cut_trainer_power,
    "rollout-pod": faults.delete_rollout,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="times that each fault strikes (default 5)")
    parser.add_argument("--faults", nargs="*", default=list(STRIKES), choices=list(STRIKES))
    parser.add_argument("--strategies", nargs="*", default=["RoleBased", "WholeJob"])
    parser.add_argument("--name", default="robustrl", help="name of the cluster")
    parser.add_argument("--out", type=Path, default=Path("out/bench-recovery.json"))
    arguments = parser.parse_args()
    running = stack.bring_up(arguments.name)
    found: list[Measurement] = []
    # Fault by fault, so that both strategies meet the same weather on a shared machine.
    for fault in arguments.faults:
        for strategy in arguments.strategies:
            job = _start(running, strategy)
            for number in range(arguments.repeat):
                seconds = measure(job, fault)
                found.append(Measurement(strategy, fault, seconds))
                print(f"{fault:12s} {strategy:9s} {number + 1}/{arguments.repeat}: {seconds:6.2f} s", flush=True)
            job.delete()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps([vars(each) for each in found], indent=1))
    print("\n" + table(found))
    return 0


def _start(running: cluster.Cluster, strategy: str) -> ClusterJob:
    manifest = sample(
        "bench",
        steps=MAX_STEPS,
        recovery={"strategy": strategy, "budgets": {"jobRestarts": 1000}},
    )
    manifest["spec"]["data"] |= {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32}
    # A step takes about a third of a second, so that what is measured is the recovery and not the wait for a batch.
    return ClusterJob.create(running, manifest)


def measure(job: ClusterJob, fault: str) -> float:
    """Strike once and time the next optimizer step."""
    _settle(job)
    epoch = job.status.epoch
    training_stops = fault != "rollout-pod" or job.read().spec.recovery.strategy == "WholeJob"
    struck = STRIKES[fault](job)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for step in _curve(job):
            later = step["epoch"] > epoch if training_stops else True
            if later and step["time"] > struck:
                faults.mend(job)
                return float(step["time"] - struck)
        time.sleep(0.1)
    raise TimeoutError(f"{fault}: no step within {DEADLINE_SECONDS:.0f} s")


def _settle(job: ClusterJob) -> None:
    """Wait until nothing is missing and the standby has had time to load."""
    job.wait(lambda s: not s.recovering and s.epoch > 0, "recovery", DEADLINE_SECONDS)
    wanted = job.read().spec.rollout.replicas
    job.wait(lambda s: sum(p.admitted for p in s.pods) >= wanted, "engines", DEADLINE_SECONDS)
    time.sleep(STANDBY_SECONDS)
    start = job.step()
    job.until_step(start + SETTLE_STEPS, DEADLINE_SECONDS)
    assert not has_ended(job.status)


def _curve(job: ClusterJob) -> list[dict[str, Any]]:
    """Committed steps, from the managers; empty while they are away."""
    for manager in job.playing(Role.MANAGER):
        try:
            with urllib.request.urlopen(f"http://{manager['address']}:8300/v1/curve", timeout=2) as response:
                return list(json.load(response))
        except (OSError, ValueError):
            continue
    return []


def table(found: list[Measurement]) -> str:
    """Median and maximum of each fault, and how many times slower WholeJob is."""
    lines = [f"{'fault':14s} {'RoleBased median (max)':>24s} {'WholeJob median (max)':>24s} {'ratio':>7s} {'aim':>6s}"]
    for fault in dict.fromkeys(each.fault for each in found):
        by_role, whole = _times(found, "RoleBased", fault), _times(found, "WholeJob", fault)
        ratio = f"{statistics.median(whole) / statistics.median(by_role):6.1f}x" if by_role and whole else "-"
        aim = f"{TARGETS[fault]:.0f} s" if fault in TARGETS else "-"
        lines.append(f"{fault:14s} {_summary(by_role):>24s} {_summary(whole):>24s} {ratio:>7s} {aim:>6s}")
    return "\n".join(lines)


def _times(found: list[Measurement], strategy: str, fault: str) -> list[float]:
    return [each.seconds for each in found if (each.strategy, each.fault) == (strategy, fault)]


def _summary(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} s ({max(times):.2f} s)" if times else "-"


if __name__ == "__main__":
    sys.exit(main())
