"""A job without storage loses its only trainer: another pod's memory has the newest checkpoint."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.local.conftest import example, running

from robustrl.audit import record, report
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, holds
from robustrl_operator.local.hand import LocalHand
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder

SECONDS = 180.0
STEPS, LOST_AT = 9, 4


async def until_copied(run: LocalRun) -> None:
    """Wait until somebody else's memory has the newest committed checkpoint."""
    holders: list[str] = []
    while len(holders) < 2:
        await asyncio.sleep(0.1)
        newest = (await asyncio.to_thread(record.read, RunFolder(run.folder).ledger)).commits[-1].version
        holders = [pod.name for pod in run.body.processes if Shelf(pod.folder / "checkpoints", 2).copies(newest)]


async def stop_training(run: LocalRun) -> str:
    """The trainer's process stands still, so that no step follows; its pod's name."""
    (trainer,) = run.body.playing(Role.TRAINER)
    await LocalHand(run.body).signal_child(trainer.name, signal.SIGSTOP)
    return trainer.name


def without_storage() -> RLJob:
    """One trainer, three rollouts."""
    return example(
        steps=STEPS,
        data={"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32, "keepBatches": STEPS},
        trainer={"replicas": 1, "parallelism": {"data": 1}},
        rollout={"replicas": 3, "minReplicas": 1},
        checkpoint={"storage": None},
        detection={"lostAfterMissed": 8},
    )


async def lose_power(run: LocalRun) -> None:
    """At a moment when nothing is on its way."""
    lost = await stop_training(run)
    await until_copied(run)
    await LocalHand(run.body).cut_power(lost)


async def drain(run: LocalRun) -> None:
    """At any moment: the trainer sees its step out and hands over."""
    (trainer,) = run.body.playing(Role.TRAINER)
    await LocalHand(run.body).delete(trainer.name)


@pytest.mark.local
@pytest.mark.timeout(400)
@pytest.mark.parametrize("lose", [lose_power, drain])
async def test_nothing_is_lost_with_the_only_trainer_and_no_storage(
    tmp_path: Path, lose: Callable[[LocalRun], Awaitable[None]]
) -> None:
    out = tmp_path / "out"
    async with running(without_storage(), out) as run:
        async with asyncio.timeout(SECONDS):
            await run.until_step(LOST_AT)
            await lose(run)
            status = await run.until_ended()
    assert holds(status, ConditionType.SUCCEEDED), status.conditions
    assert status.epoch == 2, status.incidents
    found = record.read(out / "ledger.sqlite")
    assert report.of(found).ok, report.of(found).findings
    assert found.undone == (), "no committed step was trained again"
    assert [commit.step for commit in found.commits] == list(range(STEPS))
    assert not (out / "checkpoints").exists(), "there was no storage"
    last = max(commit.version for commit in found.commits if commit.epoch == 1)
    words = "".join(path.read_text() for path in (out / "logs").glob("*.log"))
    assert f"restoring {last} from " in words
