"""A puller's connection to one source: says what the pull decides, reports what the source says, receives bytes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import numpy as np

from weightsync.dialogue import Dialogue
from weightsync.transport import Address, BufferLost, Connection, TransportError
from weightsync.wire import REPLY_TAG, REQUEST_TAG, Kind, Message

log = logging.getLogger(__name__)

BYTES_SECONDS = 600.0
"""For a chunk to arrive; whoever waits for it gives up long before, and closes the connection."""
FAREWELL_SECONDS = 0.5


class Link:
    """One connection, from its opening to its end.

    Args:
        hear: called with each message.
        ended: called once, when there is no connection any more and none of its receives is writing.
    """

    def __init__(
        self,
        address: Address,
        hello: Message,
        hear: Callable[[Message], None],
        ended: Callable[[Exception | None], None],
    ) -> None:
        self._address, self._hello, self._hear, self._ended = address, hello, hear, ended
        self._connection: Connection | None = None
        self._dialogue: Dialogue | None = None
        self._receiving: set[asyncio.Task[None]] = set()
        self._leaving = False
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"weights from {address}")

    def say(self, message: Message) -> None:
        assert self._dialogue is not None
        self._dialogue.say(message)

    def receive(self, place: np.ndarray, tag: int, then: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Receive into `place`, then do the rest. Nothing is written to it any more once the task has ended."""
        task = asyncio.get_running_loop().create_task(self._receive(place, tag, then))
        self._receiving.add(task)
        task.add_done_callback(self._receiving.discard)
        return task

    def leave(self) -> None:
        """Go, in peace if nothing is on its way, else by closing the connection."""
        self._leaving = True
        if self._dialogue is None:
            self.task.cancel()
        elif self._receiving:
            self.abort()
        else:
            self._dialogue.say(Message(Kind.BYE, self._hello.version))
            asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self.abort)

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def _run(self) -> None:
        problem: Exception | None = None
        try:
            self._connection = await Connection.open(self._address)
            self._dialogue = Dialogue(self._connection, REQUEST_TAG, REPLY_TAG)
            self._dialogue.say(self._hello)
            await self._dialogue.run(self._dispatch)
        except TransportError as error:
            problem = error
        finally:
            if self._receiving:
                self.abort()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*self._receiving, return_exceptions=True)
            if self._connection is not None:
                await self._connection.close()
            self._ended(None if self._leaving else problem)

    def _dispatch(self, message: Message) -> bool:
        if message.kind is Kind.BYE:
            return False
        if not self._leaving:
            self._hear(message)
        return True

    async def _receive(self, place: np.ndarray, tag: int, then: Callable[[], Awaitable[None]]) -> None:
        assert self._connection is not None
        try:
            await self._connection.receive(place, tag, BYTES_SECONDS)
        except BufferLost:
            raise
        except TransportError:
            return  # the dialogue ends by it too, and says so
        if not self._leaving:
            await then()
