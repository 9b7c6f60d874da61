"""A connection as two streams of messages and, beside them, bytes: what puller and source have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from weightsync.transport import Connection, TransportError
from weightsync.wire import MESSAGE_BYTES, Message

IDLE_SECONDS = 24 * 3600.0
"""A silent peer is noticed by what it owes; while it owes nothing it may be silent."""
MESSAGE_SECONDS = 10.0
"""For a small message to leave."""


class Dialogue:
    """Messages in order, each way.

    Args:
        send_tag: of the messages from here.
        receive_tag: of those to here.
    """

    def __init__(self, connection: Connection, send_tag: int, receive_tag: int) -> None:
        self.connection = connection
        self._send_tag, self._receive_tag = send_tag, receive_tag
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()

    def say(self, message: Message) -> None:
        """Send a message after those before it. A failure ends `run`."""
        self._outbox.put_nowait(message.pack())

    async def run(self, hear: Callable[[Message], bool]) -> None:
        """Send and receive until `hear` returns False; what was said until then is sent.

        Raises:
            TransportError: the connection failed, or the peer does not speak our language.
        """
        writer = asyncio.create_task(self._write())
        reader = asyncio.create_task(self._read(hear))
        try:
            await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                self.connection.abort()  # ends the reader too
            await reader
            await asyncio.wait_for(self._outbox.join(), MESSAGE_SECONDS)
        except TimeoutError as error:
            raise TransportError("the last messages did not leave") from error
        finally:
            # Neither is cut off in the middle of an operation without the connection being closed by it.
            writer.cancel()
            reader.cancel()
            await asyncio.gather(writer, reader, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            data = await self._outbox.get()
            await self.connection.send(np.frombuffer(data, np.uint8), self._send_tag, MESSAGE_SECONDS)
            self._outbox.task_done()

    async def _read(self, hear: Callable[[Message], bool]) -> None:
        frame = np.empty(MESSAGE_BYTES, np.uint8)
        while True:
            await self.connection.receive(frame, self._receive_tag, IDLE_SECONDS)
            try:
                message = Message.unpack(frame.tobytes())
            except ValueError as error:
                raise TransportError(str(error)) from error
            if not hear(message):
                return
