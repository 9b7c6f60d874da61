"""Messages on the wire: little endian, a fixed head and what belongs to the kind. Every one names its version, so every
request is fenced, and a late word about another version is known for what it is.

Words go over TCP; the bytes of chunks over UCX, with a tag of their own for each attempt, so that a late answer meets
no other request. The welcome says where UCX listens, and with which token the puller is to introduce itself there.

    puller                      source
                           <-   welcome (port, token)
    HELLO (who, have)      ->
                           <-   HAVE (have, peers), again whenever there is more; or GONE
    ASK (candidates, have) ->
                           <-   CHUNK (chunk); or BUSY, RELIEVED, LACKING (have), GONE
    ACCEPT or DECLINE      ->                  not needed if the request was READY
                           <=   the bytes
    CANCEL                 ->
                           <-   CANCELLED      only if the request was READY
    MANIFEST               ->
                           <-   MANIFEST (text), or GONE

Whoever has enough closes the connection.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from weightsync.swarm.peer import Peer

_HEAD = struct.Struct("<IHHIQQII16sII")
_MAGIC = 0x32535752
MESSAGE_BYTES = 64 * 1024
"""Longest message without a manifest. Bitmaps of 128,000 chunks fit, twice over."""
LONGEST_REPLY_BYTES = (64 << 20) + MESSAGE_BYTES
"""With one."""
TOKEN_TAG = 1
TOKEN_BYTES = 16
_WELCOME = struct.Struct(f"<IH{TOKEN_BYTES}s")


class Kind(IntEnum):
    HELLO = 1
    MANIFEST = 2
    ASK = 3
    ACCEPT = 4
    DECLINE = 5
    CANCEL = 6

    HAVE = 16
    CHUNK = 17
    BUSY = 18
    RELIEVED = 19
    LACKING = 20
    CANCELLED = 21
    GONE = 22
    FREE = 23
    """A slot is free, for those who were told BUSY."""


class Flag(IntFlag):
    NONE = 0
    READY = 1
    """The chunk may be sent as soon as there is a slot."""
    LAST_RESORT = 2
    """The puller knows of no relay that has this."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The source's first word.

    Args:
        port: where UCX listens.
        token: names this connection there.
    """

    port: int
    token: bytes

    def pack(self) -> bytes:
        return _WELCOME.pack(_MAGIC, self.port, self.token)

    @classmethod
    def unpack(cls, data: bytes) -> Welcome:
        """Read it.

        Raises:
            ValueError: it is something else.
        """
        if len(data) != _WELCOME.size or not data.startswith(_WELCOME.pack(_MAGIC, 0, b"")[:4]):
            raise ValueError("this is no weight source")
        _, port, token = _WELCOME.unpack(data)
        return cls(port, token)


@dataclass(frozen=True, slots=True)
class Version:
    """What a message is about."""

    epoch: int
    step: int
    shard: int
    root: str


def data_tag(attempt: int) -> int:
    """Tag of the bytes that a connection's request number `attempt` brings."""
    return TOKEN_TAG + attempt


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Fields that a kind has no use for are empty."""

    kind: Kind
    version: Version
    attempt: int = 0
    """Unique on the connection."""
    chunk: int = 0
    flags: Flag = Flag.NONE
    have: bytes = b""
    """Bitmap of the chunks that the sender holds."""
    candidates: tuple[int, ...] = ()
    peers: tuple[Peer, ...] = ()
    """In HELLO the sender itself, in HAVE others that hold the version."""
    text: bytes = b""
    """In a source's MANIFEST, the manifest."""

    @property
    def data_tag(self) -> int:
        """Tag of the bytes that belong to this request."""
        return data_tag(self.attempt)

    def pack(self) -> bytes:
        version = self.version
        tail = struct.pack(f"<{len(self.candidates)}I", *self.candidates) + self.have + self.text
        if self.peers:
            tail += json.dumps([[peer.name, peer.host, peer.publisher] for peer in self.peers]).encode()
        head = _HEAD.pack(
            _MAGIC, self.kind, self.flags, version.shard, version.epoch, version.step, self.chunk, self.attempt,
            bytes.fromhex(version.root), len(self.candidates) << 20 | len(self.have), len(tail),
        )  # fmt: skip
        if len(head) + len(tail) - len(self.text) > MESSAGE_BYTES:
            raise ValueError(f"a message of {len(head) + len(tail)} bytes is too long")
        return head + tail

    @classmethod
    def unpack(cls, data: bytes) -> Message:
        """Read a message from the beginning of `data`.

        Raises:
            ValueError: it is none.
        """
        try:
            magic, kind, flags, shard, epoch, step, chunk, attempt, root, lengths, tail = _HEAD.unpack_from(data)
            if magic != _MAGIC:
                raise ValueError("not a weightsync message")
            rest = data[_HEAD.size : _HEAD.size + tail]
            count, have_bytes = lengths >> 20, lengths & 0xFFFFF
            candidates = struct.unpack_from(f"<{count}I", rest)
            have = rest[4 * count : 4 * count + have_bytes]
            last = rest[4 * count + have_bytes :]
            version = Version(epoch, step, shard, root.hex())
            text, named = (last, b"") if kind == Kind.MANIFEST else (b"", last)
            peers = tuple(Peer(str(n), str(h), bool(p)) for n, h, p in json.loads(named)) if named else ()
            return cls(Kind(kind), version, attempt, chunk, Flag(flags), have, candidates, peers, text)
        except (struct.error, TypeError, RecursionError) as error:
            raise ValueError(f"not a weightsync message: {error}") from error
