"""The agent's side of the control channel: reports, and calls back when its assignment changes.

If the operator is away the agent carries on with what it has and keeps trying, with bounded, jittered delays.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

import aiohttp

from robustrl.control_access import ControlAccess
from robustrl.supervisor.state import PodState
from robustrl_api.control import Assignment
from robustrl_api.errors import describe
from robustrl_api.pod_config import PodConfig
from robustrl_api.skew import read_message

log = logging.getLogger(__name__)

ANSWER_MARGIN_SECONDS = 5.0
CONNECT_SECONDS = 3.0
HANDSHAKE_SECONDS = 1.0
"""A kernel takes a connection within less, even where its machine is busy. A dead machine never does, and by then
another operator may lead, to which the next call goes."""


class ControlClient:
    """Keeps one report in the air; a change is reported at once, beside the call that is being held."""

    def __init__(self, config: PodConfig, state: PodState, apply: Callable[[Assignment], Awaitable[None]]) -> None:
        self._access = ControlAccess(config.control_url, config.ca_file, config.token_file)
        self._state = state
        self._apply = apply
        self._applied = ""
        self._heartbeat_seconds = 1.0
        self._failures = 0

    async def run(self) -> None:
        """Report until cancelled."""
        async with self._access.session() as session:
            held: set[asyncio.Task[Assignment | None]] = set()
            try:
                while True:
                    await self._turn(session, held)
            finally:
                for call in held:
                    call.cancel()

    async def _turn(self, session: aiohttp.ClientSession, held: set[asyncio.Task[Assignment | None]]) -> None:
        """Post if there is news or no call in the air; then wait for an answer, or for more news."""
        if not held or self._state.changed.is_set():
            self._state.changed.clear()
            held.add(asyncio.create_task(self._post(session), name="report"))
        news = asyncio.create_task(self._state.changed.wait(), name="news")
        try:
            done, _ = await asyncio.wait({*held, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        for call in held & done:
            held.discard(call)
            await self._take(call.result())

    async def _take(self, assignment: Assignment | None) -> None:
        if assignment is None:
            # No operator hears more of agents that lost theirs than of those that have one.
            pause = min(self._heartbeat_seconds, 0.05 * 2 ** min(self._failures, 10))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            return
        self._heartbeat_seconds = assignment.heartbeat_seconds
        if assignment.etag != self._applied:
            self._applied = assignment.etag
            await self._apply(assignment)

    async def _post(self, session: aiohttp.ClientSession) -> Assignment | None:
        """One report; None where it brought no assignment."""
        timeout = aiohttp.ClientTimeout(
            total=self._heartbeat_seconds + ANSWER_MARGIN_SECONDS,
            connect=CONNECT_SECONDS,
            sock_connect=HANDSHAKE_SECONDS,
        )
        body = self._state.report(self._applied).model_dump_json(by_alias=True)
        try:
            async with session.post(
                f"{self._access.url}/v1/report",
                data=body,
                headers=self._access.headers(),
                ssl=self._access.tls(),
                timeout=timeout,
            ) as response:
                text = await response.text()
                if response.status == 200:
                    self._failures = 0
                    return read_message(Assignment, text)
                self._note_failure(f"{response.status} {text[:300]}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._note_failure(describe(error))
        return None

    def _note_failure(self, why: str) -> None:
        if self._failures in (0, 10, 100):
            log.warning("no assignment from the operator (%s); carrying on with what there is", why)
        self._failures = min(self._failures + 1, 1000)
