"""Waking everyone who waits for something to change."""

from __future__ import annotations

import asyncio


class Pulse:
    """Take ``next()`` before looking at the state, and await it afterwards: no change in between is
    missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    def next(self) -> asyncio.Event:
        return self._event


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event happened within so many seconds."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return False
    return True
