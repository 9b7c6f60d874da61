"""What a run on this machine does about its own parts that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.operator.build import job

from robustrl_api.job import ObjectMeta, RLJob
from robustrl_operator.faults.kind import Fault, FaultKind
from robustrl_operator.local.run import LocalRun


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalRun:
    """Not started; its job neither moves nor ends."""

    async def at_once(_run: LocalRun, _step: int) -> None:
        return

    monkeypatch.setattr(LocalRun, "until_step", at_once)
    monkeypatch.setattr(LocalRun, "ended", lambda _run: False)
    faults = [Fault(FaultKind.TRAINER, 1), Fault(FaultKind.WORKER, 2)]
    return LocalRun(RLJob(metadata=ObjectMeta(name="j"), spec=job()), tmp_path, faults)


async def test_a_fault_that_finds_nobody_is_told_and_keeps_no_other_from_striking(
    run: LocalRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job would be said to have survived faults that never were."""
    struck = []

    async def strike(_run: LocalRun, kind: FaultKind) -> tuple[str, ...]:
        if kind is FaultKind.TRAINER:
            raise LookupError("there is no trainer to strike now")
        struck.append(kind)
        return ("j-trainer-0",)

    monkeypatch.setattr(LocalRun, "strike", strike)
    await run._strike()
    assert struck == [FaultKind.WORKER]
    assert [mark.text for mark in run.timeline.marks] == ["trainer did NOT strike: there is no trainer to strike now"]


async def test_who_waits_for_a_job_hears_of_a_part_of_the_run_that_died(run: LocalRun) -> None:
    async def dies() -> None:
        raise RuntimeError("the reconcile loop died")

    run._tasks = [asyncio.create_task(dies())]
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="the reconcile loop died"):
            await run.until_ended()
