"""Where a shard's bytes lie, for whoever sends, receives and verifies them: host memory here, a GPU's in `device`."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import numpy as np

from weightsync.manifest import Buffer, digest_of

INLINE_BYTES = 512 * 1024
"""Digested in less time than it takes to hand it to a thread."""


class Memory(Protocol):
    """One contiguous range of bytes. A piece of it, or beside it, is whatever UCX sends from and receives into."""

    @property
    def size_bytes(self) -> int: ...

    def piece(self, offset: int, size_bytes: int) -> Any:
        """Part of it, sharing its bytes."""
        ...

    def beside(self, size_bytes: int) -> Any:
        """A new piece of the same kind of memory, for bytes whose place is taken."""
        ...

    async def digest(self, piece: Any) -> str:
        """The xxh3-128 of a piece, worked out beside the loop where it takes long."""
        ...

    async def put(self, offset: int, piece: Any) -> None:
        """Copy a piece in. It is there when this returns."""
        ...

    async def clear(self, piece: Any) -> None:
        """Leave nothing of what a piece holds."""
        ...


class HostMemory:
    """The bytes of a buffer."""

    def __init__(self, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        self.size_bytes = len(view)
        self._array = np.frombuffer(view, np.uint8) if len(view) else np.empty(0, np.uint8)

    def piece(self, offset: int, size_bytes: int) -> np.ndarray:
        return self._array[offset : offset + size_bytes]

    def beside(self, size_bytes: int) -> np.ndarray:
        return np.empty(size_bytes, np.uint8)

    async def digest(self, piece: np.ndarray) -> str:
        if len(piece) <= INLINE_BYTES:
            return digest_of(piece.data)
        return await asyncio.to_thread(digest_of, piece.data)  # xxhash releases the interpreter lock

    async def put(self, offset: int, piece: np.ndarray) -> None:
        await asyncio.to_thread(np.copyto, self.piece(offset, len(piece)), piece)

    async def clear(self, piece: np.ndarray) -> None:
        piece[:] = 0


def memory_of(data: Buffer | Memory) -> Memory:
    """A buffer as host memory; anything else as it is."""
    return HostMemory(data) if isinstance(data, bytes | bytearray | memoryview) else data
