"""The whole example through three faults: it learns as if there had been none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.local.conftest import example, running

from robustrl.audit import report
from robustrl_api.status import ConditionType, holds

SECONDS = 1700.0
EXACT_SHARE = 0.9


@pytest.mark.local
@pytest.mark.timeout(1800)
async def test_the_example_learns_through_faults(tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with running(example(), out, "worker@60", "trainer@120", "rollout-pod@180") as run:
        async with asyncio.timeout(SECONDS):
            status = await run.until_ended()
    assert holds(status, ConditionType.SUCCEEDED), status.conditions
    assert status.epoch == 3, status.incidents
    found = report.read(out / "ledger.sqlite")
    assert found["audit"]["ok"], found["audit"]
    assert [commit["step"] for commit in found["curve"]] == list(range(300))
    last = [commit["metrics"]["exact"] for commit in found["curve"][-10:]]
    print(f"exact over the last ten steps: {sum(last) / len(last):.3f}")
    assert sum(last) / len(last) >= EXACT_SHARE, last
