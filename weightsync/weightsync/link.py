"""A puller's connection to one source: says what the pull decides, reports what the source says, receives bytes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from weightsync.dialogue import Dialogue
from weightsync.transport import CONNECT_SECONDS, Address, BufferLost, Connection, TransportError
from weightsync.wire import LONGEST_REPLY_BYTES, TOKEN_TAG, Message, Welcome

log = logging.getLogger(__name__)

BYTES_SECONDS = 600.0
"""For a chunk to arrive; whoever waits for it gives up long before, and closes the connection."""


class Link:
    """One connection, from its opening to its end. UCX connects when the first bytes are to come.

    Args:
        hear: called with each message.
        ended: called once, when there is no connection any more and none of its receives is writing.
    """

    def __init__(
        self,
        address: Address,
        first: Message,
        hear: Callable[[Message], None],
        ended: Callable[[Exception | None], None],
    ) -> None:
        self._address, self._first, self._hear, self._ended = address, first, hear, ended
        self._dialogue: Dialogue | None = None
        self._welcome: Welcome | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._receiving: set[asyncio.Task[None]] = set()
        self._leaving = False
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"weights from {address}")

    def say(self, message: Message) -> None:
        assert self._dialogue is not None
        self._dialogue.say(message.pack())

    def receive(self, place: Any, tag: int, then: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Receive into `place`, then do the rest. Nothing is written to it any more once the task has ended."""
        loop = asyncio.get_running_loop()
        if self._opening is None:
            self._opening = loop.create_task(self._open(), name=f"bytes from {self._address}")
        task = loop.create_task(self._receive(place, tag, then))
        self._receiving.add(task)
        task.add_done_callback(self._receiving.discard)
        return task

    def leave(self) -> None:
        """Go. What is on its way is cut off."""
        self._leaving = True
        if self._dialogue is None:
            self.task.cancel()
        elif self._receiving:
            self.abort()
        else:
            self._dialogue.close()

    def abort(self) -> None:
        if self._dialogue is not None:
            self._dialogue.abort()
        if (connection := self._connection) is not None:
            connection.abort()

    @property
    def _connection(self) -> Connection | None:
        """UCX's, once it is there."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception() is not None:
            return None
        return opening.result()

    async def _run(self) -> None:
        problem: Exception | None = None
        try:
            self._dialogue = await Dialogue.open(self._address, self._dispatch, longest_bytes=LONGEST_REPLY_BYTES)
            self._dialogue.say(self._first.pack())
            await self._dialogue.wait()
            problem = TransportError("it closed the connection")
        except TransportError as error:
            problem = error
        finally:
            await self._end()
            self._ended(None if self._leaving else problem)

    async def _end(self) -> None:
        """Cut off what is left, and wait until nothing is written any more."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        if self._receiving:
            self.abort()
        left = [task for task in (self._opening, *self._receiving) if task is not None]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*left, return_exceptions=True)
        if (connection := self._connection) is not None:
            await connection.close()
        if self._dialogue is not None:
            self._dialogue.close()

    def _dispatch(self, frame: bytes) -> None:
        if self._welcome is None:
            self._welcome = Welcome.unpack(frame)
        elif not self._leaving:
            self._hear(Message.unpack(frame))

    async def _open(self) -> Connection:
        """Connect by UCX, and say to which dialogue that belongs."""
        assert self._welcome is not None, "it is said before anything is offered"
        connection = await Connection.open(Address(self._address.host, self._welcome.port))
        token = np.frombuffer(self._welcome.token, np.uint8)
        try:
            await connection.send(token, TOKEN_TAG, CONNECT_SECONDS)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _receive(self, place: Any, tag: int, then: Callable[[], Awaitable[None]]) -> None:
        assert self._opening is not None
        try:
            connection = await asyncio.shield(self._opening)
            await connection.receive(place, tag, BYTES_SECONDS)
        except BufferLost:
            raise
        except TransportError as error:
            if self._dialogue is not None:
                self._dialogue.fail(error)
            return
        if not self._leaving:
            await then()
