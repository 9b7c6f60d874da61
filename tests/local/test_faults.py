"""One job, one fault after another: each restarts its own role and nothing else, and the job goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.local.conftest import example, running
from tests.local.watching import (
    DETECTION,
    RECOVERY_SECONDS,
    SMALL_BATCH,
    START_SECONDS,
    STEPS_BETWEEN,
    judge,
    look,
    until_it_can_be_struck,
    until_well,
)

from robustrl.audit import report
from robustrl_operator.faults.matrix import Place, Row, rows
from robustrl_operator.local.run import LocalRun

pytestmark = [pytest.mark.local, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalRun]:
    job = example(steps=100_000, data=SMALL_BATCH, detection=DETECTION)
    async with running(job, tmp_path_factory.mktemp("faults") / "out") as at_work:
        yield at_work


ROWS = rows(Place.LOCAL)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_fault_restarts_its_role_only(run: LocalRun, row: Row) -> None:
    await until_well(run, STEPS_BETWEEN, 0, START_SECONDS)
    await until_it_can_be_struck(run, row)
    before, step = look(run), run.step
    struck = await run.strike(row.kind, row.index)
    await asyncio.sleep(row.seconds)
    await until_well(run, step + STEPS_BETWEEN, before.incidents + row.incidents, RECOVERY_SECONDS)
    judge(run, row, before, struck)


async def test_after_all_of_them_every_trajectory_was_used_once(run: LocalRun) -> None:
    found = report.read(run.folder / "ledger.sqlite")
    assert found["audit"]["ok"], found["audit"]
    assert [commit["step"] for commit in found["curve"]] == list(range(len(found["curve"])))
