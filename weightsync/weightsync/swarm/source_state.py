"""What a pull knows of one source: whether it may be asked, and when again."""

from __future__ import annotations

import random
from enum import Enum, auto

from weightsync.swarm.chunk_set import ChunkSet
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.peer import Peer


class Phase(Enum):
    IDLE = auto()
    CONNECTING = auto()
    OPEN = auto()
    RESTING = auto()
    """After a failure, or because it had nothing; idle again at `not_before`."""


class SourceState:
    """One source of one pull."""

    __slots__ = (
        "_config", "busy", "gone", "have", "mutual", "not_before", "peer", "phase", "requests", "same_host",
        "spent", "tries",
    )  # fmt: skip

    def __init__(self, peer: Peer, *, same_host: bool, config: SwarmConfig) -> None:
        self.peer, self.same_host, self._config = peer, same_host, config
        self.phase = Phase.IDLE
        self.have: ChunkSet = 0
        self.tries = 0
        """Failures in a row."""
        self.spent = False
        """Whether the last try failed as well."""
        self.busy = 0
        """Refusals in a row for want of a slot."""
        self.gone = False
        """Whether it said that it does not have this version."""
        self.mutual = False
        """Whether it pulls from here."""
        self.not_before = 0.0
        """When it may be asked again; while connecting, when that must have happened."""
        self.requests = 0

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def publisher(self) -> bool:
        return self.peer.publisher

    @property
    def active(self) -> bool:
        """Whether there is a connection, or will be."""
        return self.phase is Phase.OPEN or self.phase is Phase.CONNECTING

    def usable(self, now: float) -> bool:
        """Whether a request may go there now."""
        free = self.requests < self._config.requests_per_source
        return self.phase is Phase.OPEN and free and self.not_before <= now

    def connecting(self, now: float) -> None:
        self.phase, self.not_before = Phase.CONNECTING, now + self._config.connect_seconds

    def opened(self, now: float) -> None:
        self.phase, self.not_before, self.busy, self.gone, self.spent = Phase.OPEN, now, 0, False, False

    def failed(self, now: float, rng: random.Random) -> None:
        """Back off: twice as long after every failure, and for good while after the last try."""
        self.tries += 1
        if self.tries >= self._config.tries:
            self.tries, self.spent = 0, True
            self.rest(now, self._config.rest_seconds * rng.uniform(0.8, 1.2))
        else:
            self.rest(now, self._config.retry_seconds * 2 ** (self.tries - 1) * rng.uniform(0.5, 1.5))

    def rest(self, now: float, seconds: float) -> None:
        """Leave it alone for a while."""
        self.phase, self.not_before, self.requests, self.have = Phase.RESTING, now + seconds, 0, 0

    def refused(self, now: float, chunk_seconds: float | None, rng: random.Random) -> None:
        """All its slots are taken: ask again in part of a chunk's time, later each time."""
        first = chunk_seconds / 4 if chunk_seconds else self._config.busy_seconds
        seconds = min(self._config.longest_busy_seconds, first * 2 ** min(self.busy, 2))
        self.busy += 1
        self.not_before = now + seconds * rng.uniform(0.5, 1.5)

    def answered(self) -> None:
        """It does its work."""
        self.busy = self.tries = 0
