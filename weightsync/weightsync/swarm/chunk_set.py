"""Sets of chunk numbers as integers: bit i is chunk i. Union, difference and counting are single operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

ChunkSet = int
Numbers = npt.NDArray[np.int64]


def full(count: int) -> ChunkSet:
    """All of `count` chunks."""
    return (1 << count) - 1


def of(chunks: Iterable[int]) -> ChunkSet:
    found = 0
    for chunk in chunks:
        found |= 1 << chunk
    return found


def members(chunks: ChunkSet) -> Iterator[int]:
    """The chunk numbers in a set, ascending."""
    return iter(numbers(chunks).tolist())


def numbers(chunks: ChunkSet) -> Numbers:
    """The same as an array. Takes time as the largest number is large: bit by bit it would be that squared."""
    bitmap = np.frombuffer(chunks.to_bytes(chunks.bit_length() // 8 + 1, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))


def to_bytes(chunks: ChunkSet, count: int) -> bytes:
    """A bitmap of `count` bits, little endian."""
    return chunks.to_bytes((count + 7) // 8, "little")


def from_bytes(data: bytes, count: int) -> ChunkSet:
    """Read a bitmap; bits beyond `count` are dropped."""
    return int.from_bytes(data, "little") & full(count)
