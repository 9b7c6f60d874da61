"""One connection to one source: ask for something, have it arrive in a buffer of one's own."""

from __future__ import annotations

import asyncio

import numpy as np

from weightsync.manifest import Chunk
from weightsync.transport import BufferLost, Connection, SourceRefused, TransportError
from weightsync.verify import matches
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
            for end in await asyncio.gather(answer, data, return_exceptions=True):
                if isinstance(end, BufferLost):
                    raise end from None
            raise
        reply = Reply.unpack(frame.tobytes())
        if reply.status is not Status.OK:
            raise SourceRefused(f"the source says {reply.status.name}")
        return reply.size_bytes

    async def fetch(self, index: int, chunk: Chunk, place: np.ndarray, seconds: float) -> None:
        """Have a chunk arrive where it belongs, without a copy, and verify it while the next one arrives.

        Args:
            place: the chunk's own part of a destination that nobody reads before it is verified. When this raises,
                it may have been written to, and will be no more, so another source may be asked for the same chunk.

        Raises:
            TransportError: the source failed, stalled, no longer has it, or sent something else.
            BufferLost: the destination must be given up.
        """
        size = await self.ask(Operation.CHUNK, index, place, seconds)
        if size != chunk.size_bytes or not await matches(place, chunk.digest):
            place[:] = 0
            raise TransportError(f"chunk {index} arrived damaged")
