"""Asks a silent agent whether it lives. The answer is evidence for the next plan, nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from robustrl_operator.control.hub import Clock
from robustrl_operator.plan import ProbePod
from robustrl_operator.view import Probe

PROBE_SECONDS = 0.9


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

    def ask(self, probe: ProbePod) -> None:
        """Start a probe, unless one of this pod is under way."""
        if probe.uid in self._running:
            return
        self._results[probe.uid] = Probe(self._clock(), answered=False, done=False)
        task = asyncio.create_task(self._ask(probe), name=f"probe-{probe.name}")
        self._running[probe.uid] = task
        task.add_done_callback(lambda _: self._running.pop(probe.uid, None))

    async def _ask(self, probe: ProbePod) -> None:
        asked = self._results[probe.uid].asked
        answered = await self._answers(probe.address)
        self._results[probe.uid] = Probe(asked, answered)
        self._on_result()

    async def _answers(self, address: str) -> bool:
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{address}:{self._port}/healthz") as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def close(self) -> None:
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
