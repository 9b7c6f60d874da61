"""`python -m robustrl_e2e.demo`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, RLJobStatus, has_ended, holds
from robustrl_e2e import cluster, stack
from robustrl_e2e.cluster import kind
from robustrl_e2e.cluster.errors import told
from robustrl_e2e.cluster_job import POLL_SECONDS, ClusterJob, read_ledger, sample
from robustrl_operator.report import live, summary

TRAINER_AT, ROLLOUT_AT = 0.35, 0.65
"""At which parts of the run the trainer's machine and the rollout are lost."""


def main() -> int:
    """Run the demo where it can be run."""
    parser = argparse.ArgumentParser(prog="python -m robustrl_e2e.demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps (default 300)")
    parser.add_argument("--name", default=os.environ.get("ROBUSTRL_CLUSTER", "robustrl"), help="name of the cluster")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the report")
    arguments = parser.parse_args()
    if os.geteuid() != 0 and not kind.available():
        return run_locally(arguments.steps, arguments.out)
    return Demo(arguments.name, arguments.steps, arguments.out).run()


def run_locally(steps: int, out: Path) -> int:
    """The same job and the same faults without Kubernetes, where there is neither Docker nor root."""
    print("There is neither a Docker engine nor root here, which a cluster needs; running the job as local processes.")
    manifest = stack.ROOT / "examples" / "sort4" / "rljob.yaml"
    faults = [f"--fault=trainer@{int(steps * TRAINER_AT)}", f"--fault=rollout-pod@{int(steps * ROLLOUT_AT)}"]
    command = [sys.executable, "-m", "robustrl_operator.cli.main", "run", str(manifest)]
    return subprocess.call([*command, f"--steps={steps}", f"--out={out.resolve()}", *faults])


@dataclass
class Demo:
    """The demo on a cluster."""

    name: str
    steps: int
    out: Path

    def run(self) -> int:
        began = time.monotonic()
        running = stack.bring_up(self.name)
        say(f"cluster and operator are up after {time.monotonic() - began:.0f} s")
        job = ClusterJob.create(running, sample("sort4", steps=self.steps))
        say("job applied; to look for yourself: kubectl get rljobs -w")
        spec = job.read()
        self._until(job, spec, int(self.steps * TRAINER_AT))
        machine = self._kill_trainer_machine(job)
        self._until(job, spec, int(self.steps * ROLLOUT_AT))
        cluster.revive_node(running, machine)
        self._delete_rollout(job)
        self._until(job, spec, self.steps + 1)
        return self._report(job, spec)

    def _until(self, job: ClusterJob, spec: RLJob, step: int) -> None:
        """Follow the run until a step or its end, with a line of progress now and then."""
        interval = live.LINE_SECONDS if sys.stdout.isatty() else live.QUIET_LINE_SECONDS
        said = 0.0
        while job.take_sample().step < step and not has_ended(job.status):
            if time.monotonic() - said > interval:
                said = time.monotonic()
                print(live.line(job.timeline, spec), flush=True)
            time.sleep(POLL_SECONDS)

    def _kill_trainer_machine(self, job: ClusterJob) -> str:
        trainer = job.playing(Role.TRAINER)[-1]
        say(f"power cut: {trainer['node']}, the machine of {trainer['name']}")
        job.timeline.mark(f"power cut at {trainer['node']}")
        cluster.kill_node(job.running, trainer["node"])
        return str(trainer["node"])

    def _delete_rollout(self, job: ClusterJob) -> None:
        rollout = job.playing(Role.ROLLOUT)[0]["name"]
        say(f"deleting {rollout}")
        job.timeline.mark(f"{rollout} deleted")
        job.kubectl("delete", "pod", rollout, "--wait=false")

    def _report(self, job: ClusterJob, spec: RLJob) -> int:
        self.out.mkdir(parents=True, exist_ok=True)
        status: RLJobStatus = job.status
        print(live.line(job.timeline, spec))
        summary.conclude(job.timeline, spec, status, self.out.resolve(), read_ledger(job))
        return 0 if holds(status, ConditionType.SUCCEEDED) else 1


def say(text: str) -> None:
    print(f"*** {text}", flush=True)


if __name__ == "__main__":
    sys.exit(told(main))
