"""How long the event loop stands still: who stood still himself cannot say of others that they did not answer."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

TICK_SECONDS = 0.05


class LoopWatch:
    """Measures while it is open (`async with`)."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._longest, self._ticked = 0.0, self._loop.time()
        self._ticking = asyncio.create_task(self._tick(), name="loop watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note()
        self._ticking.cancel()

    @property
    def stalled_seconds(self) -> float:
        """The longest that nothing ran."""
        return self._longest

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._note()

    def _note(self) -> None:
        """What waited for the loop may run before the tick that would have told of it."""
        now = self._loop.time()
        self._longest = max(self._longest, now - self._ticked - TICK_SECONDS)
        self._ticked = now
