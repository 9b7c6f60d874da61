"""Training a job's recorded batches again, as a job of its own on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from robustrl.audit import replay
from robustrl.audit.record import BadLedger, Commit
from robustrl.audit.replay import CannotReplay
from robustrl.checkpoint import folder as folders
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.job import RLJob
from robustrl_api.spec import CheckpointStorage, Standby, StandbyMode
from robustrl_api.status import ConditionType, RLJobStatus
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder

POLL_SECONDS = 0.5
PATIENT_HEARTBEATS = 100
"""On one machine an agent that is silent is a slow one; that its process ends is seen at once all the same."""


async def train_again(job: RLJob, recorded: tuple[Commit, ...], folder: Path) -> tuple[Commit, ...]:
    """Run the job on the ledger in `folder` until it has repeated every commit, or one of them differs.

    Returns:
        The replay's commits; the last one may be the one that differs.

    Raises:
        CannotReplay: the training did not get that far; a fault of its own ends it.
    """
    first = recorded[0].step
    run = LocalRun(without_rollouts(job, restores=first > 0), folder, replay=True)
    async with run.started():
        while True:
            ended = run.ended() or bool(run.status.incidents)
            done = await asyncio.to_thread(_committed, RunFolder(folder).ledger, first)
            if len(done) >= len(recorded) or replay.difference(recorded, done):
                return done[: len(recorded)]
            if ended:
                raise CannotReplay(f"the replay ended after {len(done)} steps: {_why(run.status)}; logs: {folder}/logs")
            await asyncio.sleep(POLL_SECONDS)


def without_rollouts(job: RLJob, *, restores: bool) -> RLJob:
    """The job as it is trained again: nobody generates, nobody is borrowed, and storage is the replay's own."""
    spec = job.spec
    storage = CheckpointStorage(path="/checkpoints") if restores else None
    recovery = spec.recovery.model_copy(update={"standby": Standby(mode=StandbyMode.OFF)})
    changes = {
        "rollout": spec.rollout.model_copy(update={"replicas": 0, "min_replicas": 0}),
        "checkpoint": spec.checkpoint.model_copy(update={"storage": storage}),
        "recovery": recovery,
        "detection": spec.detection.model_copy(update={"lost_after_missed": PATIENT_HEARTBEATS}),
        "services": (),
        "suspend": False,
    }
    return job.model_copy(update={"spec": spec.model_copy(update=changes), "status": RLJobStatus()})


def hand_over_checkpoint(commit: Commit, source: Shelf, target: Shelf) -> None:
    """Copy the checkpoint that a replay begins with; the job's own storage is only read.

    Raises:
        CannotReplay: there is no good copy of it.
    """
    roots = frozenset(commit.digests.values())
    problems = []
    for path in source.copies(commit.version):
        try:
            folders.verify(path, roots)
        except folders.BadCopy as error:
            problems.append(str(error))
            continue
        folders.copy(path, target.root / str(commit.version) / path.name)
        return
    raise CannotReplay(
        f"no good copy of checkpoint {commit.version} is in {source.root}: {'; '.join(problems) or 'it is not kept'}"
    )


def _committed(ledger: Path, first: int) -> tuple[Commit, ...]:
    try:
        return replay.commits_since(ledger, first)
    except BadLedger as error:
        raise CannotReplay(f"the replay's own ledger: {error}") from error


def _why(status: RLJobStatus) -> str:
    if status.incidents:
        first = status.incidents[0]
        return f"{first.cause} in {first.pod}: {first.evidence}"
    ends = (ConditionType.FAILED, ConditionType.SUCCEEDED)
    return next((each.message for each in status.conditions if each.type in ends and each.status == "True"), "stopped")
