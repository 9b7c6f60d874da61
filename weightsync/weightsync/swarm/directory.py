"""Who holds what, as last announced. Soft state: a new directory is empty and right again after one round of
announcements, and pulls go on without one, because every source names others.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from weightsync.swarm.chunk_set import ChunkSet, full, numbers
from weightsync.swarm.peer import Peer

ACCUSERS = 2
"""Replicas that must have quarantined a holder before it is named to nobody."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a holder said of one version.

    Args:
        root: the version's root digest.
        chunk_count: of the version.
    """

    peer: Peer
    root: str
    chunk_count: int
    have: ChunkSet


_Said = tuple[float, Announcement]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well a version is spread over live holders, publishers not counted."""

    holders: int
    complete: int
    fewest_copies: int
    """Of the rarest chunk."""
    mean_copies: float


class Directory:
    """Announcements by version and holder.

    Args:
        ttl_seconds: after which a holder that has not announced itself again is left out.
    """

    def __init__(self, ttl_seconds: float, rng: random.Random) -> None:
        self._ttl, self._rng = ttl_seconds, rng
        self._heard: dict[str, dict[str, _Said]] = {}
        self._forget_at = 0.0
        self._accusers: dict[str, dict[str, float]] = {}
        """By holder: who has quarantined it, and when that was said last."""

    def announce(self, now: float, announcement: Announcement) -> None:
        """A holder says what it has of a version. It replaces what it said of it before."""
        self._heard.setdefault(announcement.root, {})[announcement.peer.name] = (now, announcement)

    def accuse(self, now: float, accuser: str, names: Iterable[str]) -> None:
        """A replica takes nothing from these any more."""
        for name in names:
            self._accusers.setdefault(name, {})[accuser] = now

    def withdraw(self, name: str, root: str | None = None) -> None:
        """A holder does not serve a version any more, or nothing at all."""
        for each in [root] if root is not None else list(self._heard):
            holders = self._heard.get(each, {})
            holders.pop(name, None)
            if not holders:
                self._heard.pop(each, None)

    def holders(self, now: float, root: str, asker: str, limit: int) -> dict[Peer, ChunkSet]:
        """Whom to ask for a version: its publishers, and others at random, so that nobody is everybody's choice."""
        said = list(self._heard.get(root, {}).values())
        publishers = [each for each in said if each[1].peer.publisher and self._lives(now, each)]
        relays = (
            each
            for each in self._at_random(said)
            if not each[1].peer.publisher and self._lives(now, each) and not self._distrusted(now, each[1].peer.name)
        )
        found = [*publishers, *itertools.islice(relays, limit + 1)]  # the asker may be one of them
        others = [each for _, each in found if each.peer.name != asker][: len(publishers) + limit]
        return {each.peer: each.have for each in others}

    def _at_random(self, said: list[_Said]) -> Iterator[_Said]:
        """All of them in random order, in a time that grows with those that are taken."""
        for at in range(len(said)):
            other = self._rng.randrange(at, len(said))
            said[at], said[other] = said[other], said[at]
            yield said[at]

    def coverage(self, now: float, root: str) -> Coverage:
        """How many copies there are."""
        relays = [each for each in self._live(now, root) if not each.peer.publisher]
        if not relays:
            return Coverage(0, 0, 0, 0.0)
        count = relays[0].chunk_count
        copies = np.zeros(count, np.int64)
        for each in relays:
            copies[numbers(each.have & full(count))] += 1
        complete = sum(1 for each in relays if each.have & full(count) == full(count))
        return Coverage(len(relays), complete, int(copies.min()) if count else 0, float(copies.sum() / max(count, 1)))

    def forget_old(self, now: float) -> None:
        """Drop what is past its time to live. Looks at everything, so only now and then."""
        if now < self._forget_at:
            return
        self._forget_at = now + self._ttl / 4
        for name, accusers in list(self._accusers.items()):
            kept = {accuser: at for accuser, at in accusers.items() if at + self._ttl >= now}
            self._accusers[name] = kept
            if not kept:
                del self._accusers[name]
        for root, holders in list(self._heard.items()):
            for name in [name for name, (at, _) in holders.items() if at + self._ttl < now]:
                self.withdraw(name, root)

    def _distrusted(self, now: float, name: str) -> bool:
        """Whether enough have found it bad. One is not enough: its own memory may be what is damaged."""
        said = self._accusers.get(name, {})
        return sum(1 for at in said.values() if at + self._ttl >= now) >= ACCUSERS

    def _live(self, now: float, root: str) -> list[Announcement]:
        return [each[1] for each in self._heard.get(root, {}).values() if self._lives(now, each)]

    def _lives(self, now: float, said: _Said) -> bool:
        return said[0] + self._ttl >= now
