"""One connection to one source: ask for something, have it arrive in a buffer of one's own."""

from __future__ import annotations

import asyncio

import numpy as np

from weightsync.transport import Connection, SourceRefused
from weightsync.wire import REPLY_BYTES, REQUEST_TAG, Operation, Reply, Request, Status


class Session:
    """One connection to one source."""

    def __init__(self, connection: Connection, epoch: int, step: int, shard: int, root: str) -> None:
        self._connection = connection
        self._version = (epoch, step, shard, root)
        self._attempts = 0
        self._order = asyncio.Lock()

    async def ask(self, operation: Operation, chunk: int, staging: np.ndarray, seconds: float) -> int:
        """Ask for something and receive it into `staging`; its size in bytes.

        Raises:
            TransportError: the source failed, stalled, or no longer has it. The session is over.
        """
        self._attempts += 1
        epoch, step, shard, root = self._version
        request = Request(operation, epoch, step, shard, root, chunk, self._attempts)
        frame = np.empty(REPLY_BYTES, np.uint8)
        # Receives are posted before the request leaves, so that the answer goes straight into its buffer.
        answer = asyncio.create_task(self._connection.receive(frame, request.reply_tag, seconds))
        data = asyncio.create_task(self._connection.receive(staging, request.data_tag, seconds))
        try:
            async with self._order:
                await self._connection.send(np.frombuffer(request.pack(), np.uint8), REQUEST_TAG, seconds)
            await answer
            await data
        except BaseException:
            self._connection.abort()
            await asyncio.gather(answer, data, return_exceptions=True)
            raise
        reply = Reply.unpack(frame.tobytes())
        if reply.status is not Status.OK:
            raise SourceRefused(f"the source says {reply.status.name}")
        return reply.size_bytes
