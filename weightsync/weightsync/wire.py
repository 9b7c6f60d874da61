"""Frames on the wire: fixed size, little endian. The version is in every request, so every request is fenced."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

_REQUEST = struct.Struct("<IIQQIIQ16s")
_REPLY = struct.Struct("<IIQ")
REQUEST_BYTES = _REQUEST.size
REPLY_BYTES = _REPLY.size
_MAGIC = 0x31535752
REQUEST_TAG = 1


class Operation(IntEnum):
    MANIFEST = 1
    CHUNK = 2


class Status(IntEnum):
    OK = 0
    GONE = 1
    """The source holds another version now."""
    UNKNOWN = 2
    """No such chunk, or a request that cannot be read."""


@dataclass(frozen=True, slots=True)
class Request:
    operation: Operation
    epoch: int
    step: int
    shard: int
    root: str
    chunk: int
    attempt: int
    """Unique on the connection; the answer's tags are made from it, so a late answer meets no other request."""

    def pack(self) -> bytes:
        return _REQUEST.pack(
            _MAGIC,
            self.operation,
            self.epoch,
            self.step,
            self.shard,
            self.chunk,
            self.attempt,
            bytes.fromhex(self.root),
        )

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        """Raises ValueError for bytes that are no request."""
        magic, operation, epoch, step, shard, chunk, attempt, root = _REQUEST.unpack(data)
        if magic != _MAGIC:
            raise ValueError("not a weightsync request")
        return cls(Operation(operation), epoch, step, shard, root.hex(), chunk, attempt)

    @property
    def reply_tag(self) -> int:
        return 2 * self.attempt

    @property
    def data_tag(self) -> int:
        return 2 * self.attempt + 1


@dataclass(frozen=True, slots=True)
class Reply:
    status: Status
    size_bytes: int

    def pack(self) -> bytes:
        return _REPLY.pack(self.status, 0, self.size_bytes)

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        status, _, size_bytes = _REPLY.unpack(data)
        return cls(Status(status), size_bytes)
