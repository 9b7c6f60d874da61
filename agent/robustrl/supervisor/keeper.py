"""Keeps one process running: an engine or the managers, restarted in place for as long as the pod plays the role."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
import signal
from collections.abc import Awaitable, Callable

from robustrl.exit_status import BAD_INPUT_STATUS
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised
from robustrl.supervisor.state import PodState
from robustrl_api.control import MESSAGE_CHARACTERS, Child, ChildState, Complaint, Exit

log = logging.getLogger(__name__)

STABLE_SECONDS = 30.0
"""A process that has worked for so long did not fail at its start. How long it took to start does not count: one that
hangs there each time would be tried for ever."""
MAX_RESTART_SECONDS = 10.0
BOOT_LETTERS = 8


class Keeper:
    """One process after another, each a life with a name of its own.

    Args:
        name: what the process is, for people.
        launch: starts it.
        memory: remembers the process for the agent that comes after this one.
        serve: what there is to do for it while it lives; cancelled at its end.
        complaint: the reason given when it exits because of what the user gave us.
    """

    def __init__(
        self,
        name: str,
        state: PodState,
        memory: PodMemory,
        launch: Callable[[], Awaitable[Supervised]],
        serve: Callable[[], Awaitable[None]],
        complaint: str,
    ) -> None:
        self._name, self._state, self._launch, self._serve, self._complaint = name, state, launch, serve, complaint
        self._memory = memory
        self._process: Supervised | None = None
        self._lives = itertools.count(1)
        self._ending = ""
        self._last_end: asyncio.Task[None] | None = None
        self._restarts = 0
        self._up_since = math.inf
        self.life = ""

    async def run(self) -> None:
        """Run it until cancelled. The first restart is immediate: most exits do not happen twice."""
        loop = asyncio.get_running_loop()
        self._tell_of_the_last()
        while True:
            began, self._up_since = loop.time(), math.inf
            exit = await self._one_life()
            ended = loop.time()
            self._restarts = 1 if ended - self._up_since > STABLE_SECONDS else self._restarts + 1
            if exit.code == BAD_INPUT_STATUS:
                self._state.complaint = Complaint(reason=self._complaint, message=exit.message)
            self._set(ChildState.EXITED, exit)
            log.warning("%s exited with status %d after %.1f s", self._name, exit.code, ended - began)
            if self._restarts > 1:
                delay = min(MAX_RESTART_SECONDS, 0.2 * 2 ** min(self._restarts, 10))
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    def _tell_of_the_last(self) -> None:
        """A process that died with an agent before this one is a fault like any other, and nobody else saw it."""
        if left := self._memory.last_life():
            lost = Exit(code=-signal.SIGKILL, message="the agent was restarted, its process with it", life=left)
            self._set(ChildState.STARTING, lost)

    async def _one_life(self) -> Exit:
        """Run one process to its end."""
        self.life = f"{self._state.boot[:BOOT_LETTERS]}.{next(self._lives)}"
        self._memory.mark_life(self.life)
        self._state.activity.reset()
        self._set(ChildState.STARTING, self._state.child.last_exit)
        try:
            self._process = await self._launch()
        except (OSError, ValueError) as error:
            text = f"{self._name} cannot be started: {error}"
            return Exit(code=127, message=text[:MESSAGE_CHARACTERS], life=self.life)
        service = asyncio.create_task(self._serve_or_end(self._process), name=f"serve {self._name}")
        try:
            code = await self._process.wait()
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)
        # What it started may have outlived it, and holds the port and the devices that the next one needs.
        self._process.kill()
        requested = self._ending == self.life
        return Exit(code=code, message=self._process.last_words(), life=self.life, requested=requested)

    async def _serve_or_end(self, process: Supervised) -> None:
        """A process that is not served any more is of no use, and would look well: it begins anew."""
        try:
            await self._serve()
        except Exception:
            log.exception("%s cannot be served and is ended", self._name)
            await self._end(process)

    async def _end(self, process: Supervised) -> None:
        if not await process.end():
            self._state.complain_of_unkillable(self._name, process.pid)

    def up(self) -> None:
        """The process has begun to work."""
        if self._state.child.state is not ChildState.RUNNING:
            self._up_since = asyncio.get_running_loop().time()
            self._set(ChildState.RUNNING, self._state.child.last_exit)

    def end(self, life: str) -> None:
        """End the process of this life; any other is left alone."""
        if life and life == self.life and self._ending != life and self._process is not None:
            log.warning("%s hangs and is ended", self._name)
            self._ending = life
            self._last_end = asyncio.create_task(self._end(self._process), name=f"end {self._name}")

    def process(self) -> int | None:
        """Process ID of the present life, if it lives."""
        alive = self._process is not None and not self._process.ended.done()
        return self._process.pid if self._process is not None and alive else None

    async def stop(self) -> None:
        """After `run` was cancelled: end the process."""
        if self._process is not None:
            await self._end(self._process)
        if self._last_end is not None:
            await self._last_end
        self._memory.mark_life("")

    def _set(self, state: ChildState, exit: Exit | None) -> None:
        self._state.child = Child(state=state, restarts=self._restarts, last_exit=exit, life=self.life)
        self._state.notify()
