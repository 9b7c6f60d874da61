"""Whom to pull from. May change while pulls run: a directory's news go in here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from weightsync.swarm.chunk_set import ChunkSet
from weightsync.swarm.peer import Peer
from weightsync.transport import Address

Listener = Callable[[Mapping[Peer, ChunkSet]], None]


class Peers:
    """The holders of one version, as far as they are known.

    Args:
        final: whether no more will be heard of. A pull then ends as soon as all of them have failed.
    """

    def __init__(self, peers: Mapping[Peer, ChunkSet] | Iterable[Peer] = (), *, final: bool = False) -> None:
        self.final = final
        self._known = dict(peers) if isinstance(peers, Mapping) else dict.fromkeys(peers, 0)
        self._listeners: list[Listener] = []

    @classmethod
    def at(cls, addresses: Iterable[Address]) -> Peers:
        """Just these."""
        return cls([Peer(str(address), address.host) for address in addresses], final=True)

    def update(self, peers: Mapping[Peer, ChunkSet]) -> None:
        """News: who holds the version, and what they had when they said so."""
        self._known.update(peers)
        for listener in list(self._listeners):
            listener(peers)

    def follow(self, listener: Listener) -> None:
        """Hear of everybody known, and of all news."""
        self._listeners.append(listener)
        listener(self._known)

    def unfollow(self, listener: Listener) -> None:
        self._listeners.remove(listener)
