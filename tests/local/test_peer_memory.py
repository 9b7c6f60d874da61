"""A job without storage whose only trainer's machine loses power: another pod's memory has the newest checkpoint."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.local.conftest import example, running

from robustrl.audit import record, report
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, holds
from robustrl_operator.local.hand import LocalHand
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder

SECONDS = 180.0
STEPS, LOST_AT = 9, 4


async def until_copied(run: LocalRun) -> record.Commit:
    """Wait until somebody else's memory has the newest committed checkpoint; its commit."""
    async with asyncio.timeout(SECONDS):
        while True:
            newest = (await asyncio.to_thread(record.read, RunFolder(run.folder).ledger)).commits[-1]
            holders = {
                pod.name
                for pod in run.body.processes
                if Shelf(pod.folder / "checkpoints", 2).copies(newest.version)
            }  # fmt: skip
            if len(holders) > 1:
                return newest
            await asyncio.sleep(0.1)


async def stop_training(run: LocalRun) -> str:
    """The trainer's process stands still, so that no step follows; its pod's name."""
    (trainer,) = run.body.playing(Role.TRAINER)
    await LocalHand(run.body).signal_child(trainer.name, signal.SIGSTOP)
    return trainer.name


@pytest.mark.local
@pytest.mark.timeout(400)
async def test_nothing_is_lost_with_the_only_trainer_and_no_storage(tmp_path: Path) -> None:
    job = example(
        steps=STEPS,
        data={"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32, "keepBatches": STEPS},
        trainer={"replicas": 1, "parallelism": {"data": 1}},
        rollout={"replicas": 3, "minReplicas": 1},
        checkpoint={"storage": None},
        detection={"lostAfterMissed": 8},
    )
    async with running(job, tmp_path / "out") as run:
        async with asyncio.timeout(SECONDS):
            await run.until_step(LOST_AT)
        lost = await stop_training(run)
        newest = await until_copied(run)
        await LocalHand(run.body).cut_power(lost)
        async with asyncio.timeout(SECONDS):
            status = await run.until_ended()
    assert holds(status, ConditionType.SUCCEEDED), status.conditions
    assert status.epoch == 2, status.incidents
    found = record.read(tmp_path / "out" / "ledger.sqlite")
    assert report.of(found).ok, report.of(found).findings
    assert found.undone == (), "no committed step was trained again"
    assert newest in found.commits
    assert [commit.epoch for commit in found.commits] == [1] * (newest.step + 1) + [2] * (STEPS - newest.step - 1)
    assert not (tmp_path / "out" / "checkpoints").exists(), "there was no storage"
    words = "".join(path.read_text() for path in (tmp_path / "out" / "logs").glob("*.log"))
    assert f"restoring {newest.version} from " in words
