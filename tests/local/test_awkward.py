"""A real job that is healthy but awkward: whatever may stand still does so for longer than the windows of detection.

The same life as in tests/operator/plan/test_awkward_life.py, with real processes and windows of seconds. Tools take
long, the first step compiles, rank 0 evaluates while the others wait for it, storage is slow, engines are paused, slow
and slow to load their weights, a user's function blocks the managers. Nobody is convicted of anything.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from pathlib import Path

import aiohttp
import pytest
from tests.local.conftest import example, running
from tests.local.watching import audit, total

from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.status import ConditionType, holds
from robustrl_operator.local.run import LocalRun

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).parent / "scripts"
STEPS, PAUSED_FROM_STEP = 12, 6
WINDOW, LEASE, PROBE = 8, 40, 2
SECONDS = 500.0
ENGINE_PORT = 8100
SLOW_TOKEN_SECONDS = 1.0

Longest = dict[tuple[Role, str], float]


def awkward() -> RLJob:
    container = {"name": "trainer", "image": "none", "command": ["python3", str(SCRIPTS / "awkward.py")]}
    return example(
        steps=STEPS,
        data={
            "prompts": "awkward_tasks:prompts", "rollout": "awkward_tasks:rollout", "promptsPerStep": 8,
            "samplesPerPrompt": 8, "concurrency": 64,
        },
        trainer={"template": {"spec": {"containers": [container]}}},
        rollout={"engine": {"model": "awkward_model:build_model"}},
        detection={
            # A busy machine starts an agent more slowly than three heartbeats.
            "lostAfterMissed": 15,
            "probeSeconds": PROBE,
            "trainer": {"idleSeconds": WINDOW, "phaseLeaseSeconds": LEASE},
            "rollout": {"zeroThroughputSeconds": WINDOW, "phaseLeaseSeconds": LEASE},
            "manager": {"unansweredSeconds": WINDOW},
        },
    )  # fmt: skip


async def test_nobody_is_convicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SCRIPTS), os.environ["PYTHONPATH"]]))
    longest: Longest = defaultdict(float)
    async with running(awkward(), tmp_path / "out") as run:
        watching = asyncio.create_task(watch(run, longest))
        meddling = asyncio.create_task(meddle(run))
        async with asyncio.timeout(SECONDS):
            status = await run.until_ended()
        await meddling
        watching.cancel()
    print({f"{role} {what}": round(seconds, 1) for (role, what), seconds in longest.items()})
    assert status.incidents == ()
    assert total(run) == 0
    assert (status.epoch, status.attempt) == (1, 0)
    assert holds(status, ConditionType.SUCCEEDED), status.conditions
    assert (audit(run).findings, audit(run).steps) == ((), STEPS)
    # It was as awkward as it was meant to be.
    for what in (
        (Role.TRAINER, "Wait"), (Role.TRAINER, "Train"), (Role.TRAINER, "Evaluate"), (Role.TRAINER, "Checkpoint"),
        (Role.TRAINER, STANDSTILL), (Role.ROLLOUT, "Applying"),
    ):  # fmt: skip
        assert longest[what] > WINDOW, what


STANDSTILL = "standing still"


async def watch(run: LocalRun, longest: Longest) -> None:
    """The longest that each phase has lasted and that each role's work has stood still, as the agents report it."""
    while True:
        for heard in (run.hub.heard(pod.uid) for pod in run.body.processes):
            if heard is not None:
                role, activity = heard.report.role, heard.report.activity
                for what, seconds in (
                    (heard.report.phase, activity.phase_seconds), (STANDSTILL, activity.idle_seconds)
                ):  # fmt: skip
                    longest[role, what] = max(longest[role, what], seconds)
        await asyncio.sleep(0.2)


async def meddle(run: LocalRun) -> None:
    """From outside, as people do: one engine is paused for longer than the window, another is slow meanwhile."""
    await run.until_step(PAUSED_FROM_STEP)
    paused, slow = (f"http://{pod.address}:{ENGINE_PORT}" for pod in run.body.playing(Role.ROLLOUT)[:2])
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        await session.post(f"{slow}/slow_down", json={"forward_sleep_time": SLOW_TOKEN_SECONDS})
        for _ in range(WINDOW + PROBE + 2):
            # New weights let it go on.
            await session.post(f"{paused}/pause_generation", json={"mode": "in_place"})
            await asyncio.sleep(1)
        await session.post(f"{paused}/continue_generation", json={})
        await session.post(f"{slow}/slow_down", json={"forward_sleep_time": 0.0})
