"""Rows of the fault matrix that need a job of a certain shape, or strike at a certain moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.local.conftest import running
from tests.local.moments import until_moment, until_promoted
from tests.local.shapes import job_of, surroundings
from tests.local.watching import (
    RECOVERY_SECONDS,
    START_SECONDS,
    STEPS_BETWEEN,
    child_of,
    judge,
    look,
    total,
    until_it_can_be_struck,
    until_well,
)

from robustrl.audit import record
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.control import ChildState
from robustrl_api.status import ConditionType, holds
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.faults.matrix import Moment, Place, Row, Shape, rows
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

ELSEWHERE = {Shape.USUAL, Shape.LINGERING, Shape.RAISING}
SHAPED = {shape: rows(Place.LOCAL, shape) for shape in Shape if shape not in ELSEWHERE}

PROCESS_SECONDS = 0.5
"""By then an agent that says that an engine starts has started its process."""


async def play(run: LocalRun, row: Row) -> None:
    """Strike a job that is well, and look at it when it is well again."""
    await until_well(run, run.step + STEPS_BETWEEN, total(run), START_SECONDS)
    await until_it_can_be_struck(run, row)
    before = look(run)
    undone = count_undone(run)
    struck = await run.strike(row.kind, await until_moment(run, row))
    if row.moment is Moment.PROMOTION:
        members = {member.uid for member in run.status.members}
        struck += await run.strike(row.kind, await until_promoted(run, members))
    step = run.step
    if row.seconds:
        await meanwhile(run, row)
    await until_well(run, step + STEPS_BETWEEN, before.incidents + row.incidents, RECOVERY_SECONDS)
    judge(run, row, before, struck)
    assert count_undone(run) - undone == row.undone


async def meanwhile(run: LocalRun, row: Row) -> None:
    """The volume cannot be written for a while: the job goes on and says so; then it is mended."""
    stored, step = newest_stored(run), run.step
    await asyncio.sleep(row.seconds)
    assert run.step >= step + STEPS_BETWEEN, "the job waits for its storage"
    assert holds(run.status, ConditionType.DEGRADED), run.status.conditions
    (said,) = [c for c in run.status.conditions if c.type == ConditionType.DEGRADED]
    assert said.reason == row.degraded, said
    assert newest_stored(run) <= stored + 1
    run.mend()
    async with asyncio.timeout(RECOVERY_SECONDS):
        while newest_stored(run) < run.step - STEPS_BETWEEN or holds(run.status, ConditionType.DEGRADED):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def newest_stored(run: LocalRun) -> int:
    shelf = Shelf(RunFolder(run.folder).checkpoints, keep=0)
    return max((version.step for version in shelf.versions() if shelf.copies(version)), default=0)


def count_undone(run: LocalRun) -> int:
    return len(record.read(RunFolder(run.folder).ledger).undone)


@pytest.mark.parametrize("shape", [shape for shape, played in SHAPED.items() if played])
async def test_a_fault_in_a_job_of_a_certain_shape(tmp_path: Path, shape: Shape) -> None:
    """All rows of a shape strike one job, one after another."""
    out = tmp_path / "out"
    with surroundings(shape, out):
        async with running(job_of(shape, steps=100_000), out) as run:
            for row in SHAPED[shape]:
                await play(run, row)
            if shape is Shape.FRONTED:
                await stop_one_that_starts(run)


async def stop_one_that_starts(run: LocalRun) -> None:
    """An engine that imports everything by itself takes seconds to start, and nobody asks it for anything yet."""
    before = total(run)
    (struck,) = await run.strike(FaultKind.ENGINE, index=0)
    (uid,) = [pod.uid for pod in run.body.processes if pod.name == struck]
    async with asyncio.timeout(RECOVERY_SECONDS):
        while total(run) == before or child_of(run, uid).state is not ChildState.STARTING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    life = child_of(run, uid).life
    await asyncio.sleep(PROCESS_SECONDS)
    await run.strike(FaultKind.ENGINE_HANG, index=0)
    async with asyncio.timeout(RECOVERY_SECONDS):
        while child_of(run, uid).life == life or child_of(run, uid).state is not ChildState.RUNNING:
            assert (child_of(run, uid).life, child_of(run, uid).state) != (life, ChildState.RUNNING), "it is stopped"
            await asyncio.sleep(0.1)
    await until_well(run, run.step + STEPS_BETWEEN, before + 2, RECOVERY_SECONDS)
    assert [incident.cause for incident in run.status.incidents[-2:]] == ["EngineExited", "EngineHung"]
