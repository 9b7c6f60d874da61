"""A holder of weights serves them: verified versions, chunk by chunk, to whoever asks for exactly that version.

A request names epoch, step, shard and root; anything else than what is held is answered GONE. So a puller can never
mix versions, and a source never hands out bytes that it is about to replace: a version is served until it is dropped,
and a chunk on its way keeps its buffer alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from weightsync import transport
from weightsync.manifest import Buffer, Manifest
from weightsync.transport import Connection, TransportError
from weightsync.wire import REQUEST_BYTES, REQUEST_TAG, Operation, Reply, Request, Status

log = logging.getLogger(__name__)

IDLE_SECONDS = 3600.0
SEND_SECONDS = 30.0
REFUSAL = memoryview(bytes(1))
KEPT_VERSIONS = 2
"""The newest version and the one before it, for pullers that are half-way through."""


@dataclass(frozen=True)
class _Held:
    manifest: Manifest
    root: bytes
    data: memoryview


class Source:
    """Serves the versions it is given, from one listening port."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._listener: Any = None
        self._serving: set[asyncio.Task[None]] = set()
        self.bytes_sent = 0

    def start(self, port: int = 0) -> int:
        """Listen on all interfaces; the port, which UCX chooses when `port` is 0."""
        ucxx = transport.start()
        loop = asyncio.get_running_loop()

        async def accept(endpoint: Any) -> None:
            # UCXX may call from its own thread and loop; serving belongs to ours.
            loop.call_soon_threadsafe(self._accept, endpoint)

        self._listener = ucxx.create_listener(accept, port=port or None)
        return int(self._listener.port)

    def hold(self, manifest: Manifest, data: Buffer) -> None:
        """Serve a version. The bytes must be verified, and must not change until the version is dropped."""
        view = memoryview(data).cast("B")
        if len(view) != manifest.size_bytes:
            raise ValueError(f"the manifest says {manifest.size_bytes} bytes, the buffer has {len(view)}")
        self._held[manifest.root] = _Held(manifest, manifest.to_json(), view)
        while len(self._held) > KEPT_VERSIONS:
            del self._held[next(iter(self._held))]

    def drop(self, root: str) -> None:
        """Serve this version no longer."""
        self._held.pop(root, None)

    def _accept(self, endpoint: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(Connection(endpoint)), name="weight-source")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, connection: Connection) -> None:
        frame = np.empty(REQUEST_BYTES, np.uint8)
        with contextlib.suppress(TransportError):
            while True:
                await connection.receive(frame, REQUEST_TAG, IDLE_SECONDS)
                await self._answer(connection, frame.tobytes())
        await connection.close()

    async def _answer(self, connection: Connection, frame: bytes) -> None:
        try:
            request = Request.unpack(frame)
        except ValueError as error:
            raise TransportError(str(error)) from error
        status, data = self._find(request)
        reply = np.frombuffer(Reply(status, len(data)).pack(), np.uint8)
        await connection.send(reply, request.reply_tag, SEND_SECONDS)
        # A refusal sends a byte too: the puller has posted a receive, and to cancel it would cost the connection.
        payload = data if status is Status.OK else REFUSAL
        await connection.send(np.frombuffer(payload, np.uint8), request.data_tag, SEND_SECONDS)
        self.bytes_sent += len(data)

    def _find(self, request: Request) -> tuple[Status, memoryview]:
        held = self._held.get(request.root)
        if held is None or not _same_version(held.manifest, request):
            return Status.GONE, memoryview(b"")
        if request.operation is Operation.MANIFEST:
            return Status.OK, memoryview(held.root)
        if request.chunk >= len(held.manifest.chunks):
            return Status.UNKNOWN, memoryview(b"")
        chunk = held.manifest.chunks[request.chunk]
        return Status.OK, held.data[chunk.offset : chunk.offset + chunk.size_bytes]

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


def _same_version(manifest: Manifest, request: Request) -> bool:
    return (manifest.epoch, manifest.step, manifest.shard) == (request.epoch, request.step, request.shard)
