"""What one replica has heard of the others: who holds which chunks, and how many copies of each there are."""

from __future__ import annotations

import numpy as np

from weightsync.swarm.chunk_set import ChunkSet, numbers
from weightsync.swarm.peer import Peer


class SwarmView:
    """Chunk maps of the peers of one version. Publishers hold everything and are not counted as copies."""

    def __init__(self, chunk_count: int) -> None:
        self.chunk_count = chunk_count
        self.copies = np.zeros(chunk_count, np.int64)
        """Copies of each chunk among the relays heard of."""
        self._have: dict[str, ChunkSet] = {}
        self._peers: dict[str, Peer] = {}
        self._heard_at: dict[str, float] = {}
        self._publishers: set[str] = set()

    def have(self, name: str) -> ChunkSet:
        """What this peer is known to hold."""
        return self._have.get(name, 0)

    def heard(self, now: float, peer: Peer, have: ChunkSet) -> None:
        """A peer says what it holds. It may be less than before: the process is another one."""
        before = self._have.get(peer.name, 0)
        self._have[peer.name], self._peers[peer.name] = have, peer
        self._heard_at[peer.name] = now
        if peer.publisher:
            self._publishers.add(peer.name)
        elif before != have:
            self._count(have & ~before, 1)
            self._count(before & ~have, -1)

    def forget(self, name: str) -> None:
        """A peer is not there any more, or is not to be counted on."""
        have = self._have.pop(name, 0)
        self._heard_at.pop(name, None)
        self._peers.pop(name, None)
        if name in self._publishers:
            self._publishers.discard(name)
        else:
            self._count(have, -1)

    def forget_silent(self, since: float) -> None:
        """Forget those who were last heard of before `since`."""
        for name in [name for name, at in self._heard_at.items() if at < since]:
            self.forget(name)

    def peers(self) -> list[Peer]:
        """Everybody heard of."""
        return list(self._peers.values())

    def _count(self, chunks: ChunkSet, by: int) -> None:
        self.copies[numbers(chunks)] += by
