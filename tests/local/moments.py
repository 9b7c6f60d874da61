"""Waiting for the moment at which a row of the fault matrix strikes, by what the job says of itself."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from robustrl_api.names import Role
from robustrl_e2e.moments import POLL_SECONDS, is_told_by_managers, whom
from robustrl_operator.faults.kind import KINDS
from robustrl_operator.faults.matrix import Row
from robustrl_operator.local.run import LocalRun

WAIT_SECONDS = 60.0


async def until_moment(run: LocalRun, row: Row) -> int:
    """Wait for a row's moment; which of the role's pods is to be struck."""
    if not is_told_by_managers(row.moment):
        return row.index
    role = KINDS[row.kind].role
    assert role is not None
    deadline = time.monotonic() + WAIT_SECONDS
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline:
            (manager,) = run.body.playing(Role.MANAGER)
            async with session.get(f"http://{manager.address}:{run.job.spec.manager.port}/v1/progress") as response:
                found = whom(row, await response.json(), [pod.name for pod in run.body.playing(role)])
            if found is not None:
                return found
            await asyncio.sleep(POLL_SECONDS)
    raise TimeoutError("the moment did not come")


async def until_promoted(run: LocalRun, before: set[str]) -> int:
    """Wait until a pod that was no member has been given a trainer's place and has not made a step yet; its rank."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for member in run.status.members:
            heard = run.hub.heard(member.uid)
            if member.uid and member.uid not in before and heard and heard.report.role is Role.TRAINER:
                return member.rank
        await asyncio.sleep(POLL_SECONDS)
    raise TimeoutError("nobody was promoted")
