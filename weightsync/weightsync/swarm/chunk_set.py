"""Sets of chunk numbers as integers: bit i is chunk i. Union, difference and counting are single operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ChunkSet = int


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
    while chunks:
        lowest = chunks & -chunks
        yield lowest.bit_length() - 1
        chunks ^= lowest


def to_bytes(chunks: ChunkSet, count: int) -> bytes:
    """A bitmap of `count` bits, little endian."""
    return chunks.to_bytes((count + 7) // 8, "little")


def from_bytes(data: bytes, count: int) -> ChunkSet:
    """Read a bitmap; bits beyond `count` are dropped."""
    return int.from_bytes(data, "little") & full(count)
