"""Who holds which weights: the directory of the swarm, as agents announce themselves to it.

Soft state. Managers that come back know nobody and are told within seconds; pulls go on meanwhile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

import weightsync
from weightsync.manifest import MOST_CHUNKS
from weightsync.swarm import chunk_set
from weightsync.swarm.directory import Announcement, Coverage, Directory
from weightsync.swarm.peer import Peer

TTL_SECONDS = 15.0
"""Holders announce themselves every few seconds."""
NAMED_HOLDERS = 32


def _address(text: str) -> str:
    weightsync.Address.parse(text)
    return text


Address = Annotated[str, Field(max_length=300), AfterValidator(_address)]


class HolderMessage(BaseModel):
    """What an agent says of one version: where it serves it, and which chunks it has (a bitmap, in hexadecimal)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    address: Address
    host: str = Field(default="", max_length=128)
    chunk_count: int = Field(ge=0, le=MOST_CHUNKS)
    have: str = Field(max_length=MOST_CHUNKS // 4, pattern=r"^([0-9a-f]{2})*$")
    quarantined: tuple[Address, ...] = Field(default=(), max_length=64)
    """Holders from which it takes nothing any more: they gave it damaged chunks."""


class Holders:
    """The directory, in the messages' form."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._directory = Directory(TTL_SECONDS, random.Random())

    def announce(self, root: str, message: HolderMessage) -> dict[str, Any]:
        """Take note of a holder, and tell it of others."""
        now = self._clock()
        self._directory.forget_old(now)
        have = chunk_set.from_bytes(bytes.fromhex(message.have), message.chunk_count)
        peer = Peer(message.address, message.host)
        self._directory.announce(now, Announcement(peer, root, message.chunk_count, have))
        self._directory.accuse(now, peer.name, message.quarantined)
        found = self._directory.holders(now, root, peer.name, NAMED_HOLDERS)
        size = message.chunk_count
        return {
            "holders": [
                {"address": other.name, "host": other.host, "have": _bitmap(chunks, size)}
                for other, chunks in found.items()
            ]
        }

    def addresses(self, root: str) -> list[str]:
        """Where a version can be had, in random order."""
        return [peer.name for peer in self._directory.holders(self._clock(), root, "", NAMED_HOLDERS)]

    def coverage(self, root: str) -> Coverage:
        """How well a version is spread over the rollouts."""
        return self._directory.coverage(self._clock(), root)


def _bitmap(chunks: chunk_set.ChunkSet, size: int) -> str:
    """As many bits as the asker has chunks: who announced more has announced something else."""
    return chunk_set.to_bytes(chunks & chunk_set.full(size), size).hex()
