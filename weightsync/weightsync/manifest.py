"""What a version of the weights consists of: tensors, chunks, digests. Immutable for each (epoch, step, shard).

A shard is one contiguous range of bytes in any dtype; the library never interprets them. Its chunks are what is
transferred and verified. The root digest covers everything else in the manifest, so knowing the root is enough to
trust a manifest from anybody.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import xxhash

Buffer = bytes | bytearray | memoryview

MIN_CHUNKS = 64
MIN_CHUNK_BYTES = 256 * 1024
"""A shard is cut into at least 64 chunks where that does not make them smaller than this: fewer chunks cannot be
spread over many holders, smaller ones cost more in messages than they win."""


MOST_CHUNKS = 1 << 17
"""Of a shard. Their bitmap is part of every request."""


class BadManifest(Exception):
    """Bytes that are no manifest, or another one than was asked for."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies in the shard."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of the shard and the xxh3-128 of its bytes, in hexadecimal."""

    offset: int
    size_bytes: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """One version of one shard."""

    epoch: int
    step: int
    shard: int
    size_bytes: int
    chunks: tuple[Chunk, ...]
    tensors: tuple[Tensor, ...] = ()

    @classmethod
    def of(
        cls,
        data: Buffer,
        *,
        epoch: int,
        step: int,
        shard: int = 0,
        tensors: Sequence[Tensor] = (),
        chunk_bytes: int = 16 << 20,
    ) -> Manifest:
        """Seal bytes into a version. Reads all of them once.

        Args:
            data: the shard's bytes. They must not change for as long as the version is served.
            chunk_bytes: largest chunk; small shards get smaller ones, down to `MIN_CHUNK_BYTES`.
        """
        view = memoryview(data).cast("B")
        chunks = tuple(
            Chunk(offset, size, digest_of(view[offset : offset + size]))
            for offset, size in chunk_spans(len(view), chunk_bytes)
        )
        return cls(epoch, step, shard, len(view), chunks, tuple(tensors))

    @property
    def content(self) -> str:
        """Digest of the bytes alone: equal for two versions that hold the same weights."""
        return digest_of("".join(chunk.digest for chunk in self.chunks).encode())

    @cached_property
    def root(self) -> str:
        """Digest of the whole manifest."""
        return digest_of(self._json)

    def to_json(self) -> bytes:
        return self._json

    @cached_property
    def _json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes, root: str) -> Manifest:
        """Read a manifest that must have this root digest.

        Raises:
            BadManifest: it has another one, or is none.
        """
        if digest_of(data) != root:
            raise BadManifest("the manifest's digest is not the one announced")
        try:
            fields = json.loads(data)
            fields["chunks"] = tuple(Chunk(**chunk) for chunk in fields["chunks"])
            fields["tensors"] = tuple(Tensor(**{**t, "shape": tuple(t["shape"])}) for t in fields["tensors"])
            manifest = cls(**fields)
            manifest._check_chunks()
            return manifest
        except (ValueError, TypeError, KeyError) as error:
            raise BadManifest(f"unreadable manifest: {error}") from error

    def _check_chunks(self) -> None:
        """Raise ValueError unless the chunks cover the shard, in order and once."""
        end = 0
        for chunk in self.chunks:
            if chunk.offset != end or chunk.size_bytes < 1:
                raise ValueError(f"a chunk begins at {chunk.offset} where {end} is due")
            end += chunk.size_bytes
        if end != self.size_bytes:
            raise ValueError(f"the chunks end at {end}, the shard at {self.size_bytes}")


def digest_of(data: Buffer) -> str:
    """xxh3-128 in hexadecimal: as fast as memory, and far beyond chance collisions."""
    return xxhash.xxh3_128_hexdigest(data)


def chunk_size(size_bytes: int, largest: int) -> int:
    """Bytes in each chunk of a shard of `size_bytes`: more than `largest` where there would be too many of them."""
    wanted = min(largest, max(MIN_CHUNK_BYTES, -(-size_bytes // MIN_CHUNKS)))
    return max(1, wanted, -(-size_bytes // MOST_CHUNKS))


def chunk_spans(size_bytes: int, largest: int) -> list[tuple[int, int]]:
    """Where each chunk of a shard of `size_bytes` begins, and its size."""
    size = chunk_size(size_bytes, largest)
    return [(offset, min(size, size_bytes - offset)) for offset in range(0, size_bytes, size)]
