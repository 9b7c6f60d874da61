"""Faults that a restart of the trainers would meet again: in the first step, twice in one step, and in the script."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.local.conftest import running
from tests.local.shapes import deadlocking_job, job_of
from tests.local.watching import (
    RECOVERY_SECONDS,
    START_SECONDS,
    STEPS_BETWEEN,
    Scene,
    agents,
    audit,
    child_of,
    judge,
    total,
    until_well,
)

from robustrl_api.control import ChildState
from robustrl_api.status import ConditionType, Truth, holds
from robustrl_e2e.shapes import RAISES_IN_STEP
from robustrl_operator.faults.matrix import Moment, Place, Row, Shape, rows
from robustrl_operator.local.run import LocalRun

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

ROWS = rows(Place.LOCAL, Shape.LINGERING)
(ALWAYS,) = rows(Place.LOCAL, Shape.RAISING)


async def until_at_work(run: LocalRun, epoch: int) -> None:
    """Until every trainer of an epoch has restored and is about to make its step."""
    async with asyncio.timeout(START_SECONDS):
        while not are_at_work(run, epoch):  # noqa: ASYNC110 - what the agents say, which calls nobody
            await asyncio.sleep(0.005)


def are_at_work(run: LocalRun, epoch: int) -> bool:
    children = [child_of(run, member.uid) for member in run.status.members]
    up = [child for child in children if (child.epoch, child.state) == (epoch, ChildState.RUNNING)]
    return len(up) == run.job.spec.trainer.replicas


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_fault_that_a_restart_of_the_trainers_would_meet_again(tmp_path: Path, row: Row) -> None:
    async with running(job_of(row.shape, steps=100_000), tmp_path / "out") as run:
        first = 1
        if row.moment is Moment.SAME_STEP:
            await until_well(run, STEPS_BETWEEN, 0, START_SECONDS)
            first = run.status.epoch
            await run.strike(row.kind, row.index)
            first += 1
        await until_at_work(run, first)
        before = Scene(agents(run), epoch=1, incidents=0)
        struck = await run.strike(row.kind, row.index)
        await until_well(run, run.step + STEPS_BETWEEN, row.incidents, RECOVERY_SECONDS)
        assert run.status.attempt == 1
        judge(run, row, before, struck)


# Scripts that are at fault themselves.


async def test_an_exception_always_in_the_same_step_ends_in_a_diagnosis(tmp_path: Path) -> None:
    async with running(job_of(Shape.RAISING, steps=6), tmp_path / "out") as run:
        async with asyncio.timeout(RECOVERY_SECONDS):
            status = await run.until_ended()
        (failure,) = [c for c in status.conditions if c.type == ConditionType.FAILED]
        assert (failure.status, failure.reason) == (Truth.TRUE, ALWAYS.fails)
        assert f"the loss of step {RAISES_IN_STEP} is not a number" in failure.message
        assert f"after step {RAISES_IN_STEP}" in failure.message
        assert {incident.cause for incident in status.incidents} <= set(ALWAYS.causes)
        assert any(f"rule {ALWAYS.rule}" in incident.decision for incident in status.incidents), status.incidents
        assert (status.epoch, total(run)) == (1 + ALWAYS.epochs, ALWAYS.incidents)
        assert status.attempt >= 1, "the whole job was tried before"
        assert audit(run).findings == ()
        assert audit(run).steps == RAISES_IN_STEP


async def test_a_deadlock_in_a_collective_is_found_and_answered_by_new_workers(tmp_path: Path) -> None:
    async with running(deadlocking_job(steps=6), tmp_path / "out") as run:
        async with asyncio.timeout(RECOVERY_SECONDS):
            status = await run.until_ended()
        assert holds(status, ConditionType.SUCCEEDED), status.conditions
        (incident,) = status.incidents
        assert (incident.cause, status.epoch) == ("WorkerHung", 2)
        assert "rule 2" in incident.decision
        assert audit(run).findings == ()
