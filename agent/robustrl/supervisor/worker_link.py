"""The unix socket between the agent and the training processes: one JSON object a line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

Message = dict[str, Any]
Handler = Callable[[Message], Awaitable[Message | None]]
MAX_LINE_BYTES = 1 << 20


class WorkerLink:
    """Serves the socket. A handler's answer, if any, goes back on the same connection."""

    def __init__(self, path: Path, handle: Handler) -> None:
        self.path = path
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, str(self.path), limit=MAX_LINE_BYTES)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="worker-link")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while line := await reader.readline():
                    answer = await self._answer(line)
                    if answer is not None:
                        writer.write(json.dumps(answer).encode() + b"\n")
                        await writer.drain()
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Message | None:
        try:
            return await self._handle(json.loads(line))
        except Exception as error:
            log.exception("a training process's message could not be handled")
            return {"error": f"{type(error).__name__}: {error}"}

    async def close(self) -> None:
        """Hear nothing more: what a worker of an ended epoch said last must not be taken for the next one's."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self.path.unlink(missing_ok=True)
