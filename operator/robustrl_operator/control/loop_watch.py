"""How long the event loop stands still: who stood still himself cannot say of others that they did not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TICK_SECONDS = 0.05


@dataclass(slots=True, eq=False)
class Standstill:
    """The longest that nothing ran, within a time that is measured."""

    seconds: float = 0.0


class LoopWatch:
    """Ticks while anybody measures, once for all who do."""

    def __init__(self) -> None:
        self._measured: set[Standstill] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._ticked = 0.0

    @contextmanager
    def measuring(self) -> Iterator[Standstill]:
        """From here to the end of the block."""
        if self._ticking is None:
            self._ticked = asyncio.get_running_loop().time()
            self._ticking = asyncio.create_task(self._tick(), name="loop watch")
        self._note()
        measured = Standstill()
        self._measured.add(measured)
        try:
            yield measured
        finally:
            # What waited for the loop may run before the tick that would have told of it.
            self._note()
            self._measured.discard(measured)
            if not self._measured:
                self._ticking.cancel()
                self._ticking = None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._note()

    def _note(self) -> None:
        now = asyncio.get_running_loop().time()
        stood_still = now - self._ticked - TICK_SECONDS
        self._ticked = now
        for measured in self._measured:
            measured.seconds = max(measured.seconds, stood_still)
