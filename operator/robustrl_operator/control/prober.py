"""Asks an agent whether it lives, or whether its role's process works.

The answer is evidence for the next plan, nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

import aiohttp

from robustrl_operator.control.hub import Clock
from robustrl_operator.control.loop_watch import LoopWatch
from robustrl_operator.plan import ProbePod
from robustrl_operator.view import Probe

PROBE_SECONDS = 0.9
ANSWER_SECONDS = 0.2
"""What is left for the answer at least: a machine that has not taken the connection before is not reached."""
STALL_SECONDS = 0.2
"""An operator that stood still for so long while it asked has not heard what was answered, and asks again."""
MOST_TRIES = 5


class Reply(Enum):
    """What came of a probe."""

    ANSWERED = auto()
    SILENT = auto()
    """The machine lives, but nobody there says what was to be said."""
    UNREACHED = auto()


class Prober:
    """Runs probes in the background and keeps the last result of each pod."""

    def __init__(self, clock: Clock, on_result: Callable[[], None], agent_port: int = 8200) -> None:
        self._clock = clock
        self._on_result = on_result
        self._port = agent_port
        self._results: dict[str, Probe] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._watch = LoopWatch()

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
            reply = await self._reply(f"http://{probe.address}:{self._port}/healthz", PROBE_SECONDS)
        else:
            url = f"http://{probe.address}:{self._port}/works?seconds={probe.seconds:g}"
            reply = await self._reply(url, probe.seconds + PROBE_SECONDS)
        if probe.uid in self._results:
            answered, reached = reply is Reply.ANSWERED, reply is not Reply.UNREACHED
            self._results[probe.uid] = replace(asked, answered=answered, reached=reached, done=True)
        self._on_result()

    async def _reply(self, url: str, seconds: float) -> Reply:
        reply = Reply.UNREACHED
        for _ in range(MOST_TRIES):
            with self._watch.measuring() as standstill:
                reply = await self._get(url, seconds)
            if reply is Reply.ANSWERED or standstill.seconds < STALL_SECONDS:
                break
        return reply

    async def _get(self, url: str, seconds: float) -> Reply:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=seconds - ANSWER_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url) as response,
            ):
                return Reply.ANSWERED if response.status == 200 else Reply.SILENT
        except aiohttp.ConnectionTimeoutError:
            return Reply.UNREACHED
        except aiohttp.ClientConnectorError as error:
            return Reply.SILENT if isinstance(error.os_error, ConnectionRefusedError) else Reply.UNREACHED
        except (aiohttp.ClientError, TimeoutError):
            return Reply.SILENT

    def stop(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
