"""Waiting for the moment at which a row of the fault matrix strikes, by what the job says of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from robustrl_api.names import Role
from robustrl_api.version import Version
from robustrl_operator.faults.kind import KINDS
from robustrl_operator.faults.matrix import Moment, Row
from robustrl_operator.local.run import LocalRun

POLL_SECONDS = 0.005
WAIT_SECONDS = 60.0
Progress = dict[str, Any]


async def until_moment(run: LocalRun, row: Row) -> int:
    """Wait for a row's moment; which of the role's pods is to be struck."""
    if row.moment is Moment.PULL:
        return await _until(run, lambda said: _pod(run, row, _pulling(said)))
    if row.moment is Moment.RELAY:
        return await _until(run, lambda said: _pod(run, row, _up_to_date(said) if _pulling(said) else []))
    if row.moment is Moment.PUBLISH:
        return await _until(run, lambda said: row.index if _is_unannounced(said) else None)
    return row.index


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


async def _until(run: LocalRun, whom: Callable[[Progress], int | None]) -> int:
    deadline = time.monotonic() + WAIT_SECONDS
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline:
            (manager,) = run.body.playing(Role.MANAGER)
            async with session.get(f"http://{manager.address}:{run.job.spec.manager.port}/v1/progress") as response:
                found = whom(await response.json())
            if found is not None:
                return found
            await asyncio.sleep(POLL_SECONDS)
    raise TimeoutError("the moment did not come")


def _pod(run: LocalRun, row: Row, names: list[str]) -> int | None:
    """The place of the last of these pods among those of the row's role."""
    role = KINDS[row.kind].role
    assert role is not None
    playing = [pod.name for pod in run.body.playing(role)]
    return next((playing.index(name) for name in reversed(names) if name in playing), None)


def _pulling(said: Progress) -> list[str]:
    return [engine["pod"] for engine in said["engines"] if engine["state"] == "Pulling" and engine["version"]]


def _up_to_date(said: Progress) -> list[str]:
    return [engine["pod"] for engine in said["engines"] if engine["version"] == said["version"]]


def _is_unannounced(said: Progress) -> bool:
    return bool(said["version"]) and int(said["step"]) > Version.parse(said["version"]).step
