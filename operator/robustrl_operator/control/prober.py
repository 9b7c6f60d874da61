"""Asks an agent whether it lives, or whether its role's process works.

The answer is evidence for the next plan, nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import aiohttp

from robustrl_operator.control.hub import Clock
from robustrl_operator.control.loop_watch import LoopWatch
from robustrl_operator.plan import ProbePod
from robustrl_operator.view import Probe

PROBE_SECONDS = 0.9
STALL_SECONDS = 0.2
"""An operator that stood still for so long while it asked has not heard what was answered, and asks again."""
MOST_TRIES = 5


class Prober:
    """Runs probes in the background and keeps the last result of each pod."""

    def __init__(self, clock: Clock, on_result: Callable[[], None], agent_port: int = 8200) -> None:
        self._clock = clock
        self._on_result = on_result
        self._port = agent_port
        self._results: dict[str, Probe] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def result(self, uid: str) -> Probe | None:
        return self._results.get(uid)

    def forget(self, uid: str) -> None:
        """Drop what is known of a pod that is gone."""
        self._results.pop(uid, None)

    def ask(self, probe: ProbePod) -> None:
        """Start a probe, unless one of this pod is under way."""
        if probe.uid in self._running:
            return
        deep = probe.seconds is not None
        self._results[probe.uid] = Probe(self._clock(), answered=False, done=False, deep=deep)
        task = asyncio.create_task(self._ask(probe), name=f"probe-{probe.name}")
        self._running[probe.uid] = task
        task.add_done_callback(lambda _: self._running.pop(probe.uid, None))

    async def _ask(self, probe: ProbePod) -> None:
        asked = self._results[probe.uid]
        if probe.seconds is None:
            answered = await self._answers(f"http://{probe.address}:{self._port}/healthz", PROBE_SECONDS)
        else:
            url = f"http://{probe.address}:{self._port}/works?seconds={probe.seconds:g}"
            answered = await self._answers(url, probe.seconds + PROBE_SECONDS)
        if probe.uid in self._results:
            self._results[probe.uid] = replace(asked, answered=answered, done=True)
        self._on_result()

    async def _answers(self, url: str, seconds: float) -> bool:
        for _ in range(MOST_TRIES):
            async with LoopWatch() as watch:
                answered = await self._get(url, seconds)
            if answered or watch.stalled_seconds < STALL_SECONDS:
                return answered
        return False

    async def _get(self, url: str, seconds: float) -> bool:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url) as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def stop(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
