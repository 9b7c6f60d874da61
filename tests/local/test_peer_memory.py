"""A job without storage loses all its trainers: another pod's memory has the newest checkpoint."""

from __future__ import annotations

import asyncio
import os
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
from robustrl_operator.local.hand import child_of
from robustrl_operator.local.pod_process import PodProcess
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder

SECONDS = 180.0
STEPS, LOST_AT = 9, 4


async def is_copied(run: LocalRun, trainers: list[PodProcess]) -> bool:
    """Whether the memory of a pod that does not train has the newest committed checkpoint, soon."""
    others = [pod for pod in run.body.processes if pod not in trainers]
    for _ in range(30):
        newest = (await asyncio.to_thread(record.read, RunFolder(run.folder).ledger)).commits[-1].version
        if any(Shelf(pod.folder / "checkpoints", 2).copies(newest) for pod in others):
            return True
        await asyncio.sleep(0.1)
    return False


def without_storage(trainers: int) -> RLJob:
    """Two rollouts more than trainers."""
    return example(
        steps=STEPS,
        data={"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32, "keepBatches": STEPS},
        trainer={"replicas": trainers, "parallelism": {"data": trainers}},
        rollout={"replicas": trainers + 2, "minReplicas": 1},
        checkpoint={"storage": None},
        detection={"lostAfterMissed": 8},
    )


def signal_child(pod: PodProcess, number: signal.Signals) -> None:
    if (pid := child_of(pod)) is not None:
        os.kill(pid, number)


async def lose_power(run: LocalRun) -> None:
    """All trainers' machines at once, at a moment when nothing is on its way: their processes stand still."""
    trainers = run.body.playing(Role.TRAINER)
    while True:
        for trainer in trainers:
            signal_child(trainer, signal.SIGSTOP)
        if await is_copied(run, trainers):
            break
        # They were stopped between the ledger's answer and telling their agents.
        for trainer in trainers:
            signal_child(trainer, signal.SIGCONT)
        await asyncio.sleep(0.2)
    for trainer in trainers:
        trainer.kill_node()


async def drain(run: LocalRun) -> None:
    """At any moment: the trainer sees its step out and hands over."""
    (trainer,) = run.body.playing(Role.TRAINER)
    await run.body.lose(trainer)


@pytest.mark.local
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("trainers", "lose"), [(2, lose_power), (1, drain)])
async def test_nothing_is_lost_with_all_trainers_and_no_storage(
    tmp_path: Path, trainers: int, lose: Callable[[LocalRun], Awaitable[None]]
) -> None:
    out = tmp_path / "out"
    async with running(without_storage(trainers), out) as run:
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
