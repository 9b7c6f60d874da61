"""What a holder gives for a request: of the chunks named, the one with the fewest copies.

A publisher is relieved as soon as others can do its work: it declines chunks of which enough live relays have copies,
unless the puller can reach no other holder of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum, auto

from weightsync.swarm.chunk_set import ChunkSet
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.view import SwarmView


class Decline(Enum):
    """Why a request gets no chunk."""

    LACKING = auto()
    """None of the chunks named is here."""
    RELIEVED = auto()
    """Enough relays have them."""


class Offering:
    """The chunks that one holder has of one version, and what it has sent of them.

    Args:
        view: what this holder has heard of the others, shared with its own pull.
        chunk_bytes: the largest chunk.
        publisher: whether the version comes from here.
    """

    def __init__(
        self,
        view: SwarmView,
        rng: random.Random,
        *,
        chunk_bytes: int,
        publisher: bool,
        have: ChunkSet = 0,
        config: SwarmConfig,
    ) -> None:
        self.view, self.chunk_bytes, self.publisher, self.have = view, chunk_bytes, publisher, have
        self._rng, self._config = rng, config
        self.sent = [0] * view.chunk_count
        """How often each chunk was sent."""

    def pick(self, now: float, candidates: Sequence[int], *, last_resort: bool = False) -> int | Decline:
        """The chunk to send.

        Args:
            candidates: what the puller would take, in its order of preference.
            last_resort: it knows of no other holder.
        """
        here = [chunk for chunk in candidates if chunk < self.view.chunk_count and self.have >> chunk & 1]
        if not here:
            return Decline.LACKING
        if self.publisher and not last_resort:
            self.view.forget_silent(now - self._config.relay_seconds)
            here = [chunk for chunk in here if self.view.copies[chunk] < self._config.copies_enough]
            if not here:
                return Decline.RELIEVED
        chunk = min(here, key=self._copies)  # the first of equals: the puller's preference
        self.sent[chunk] += 1
        return chunk

    def relieved(self, now: float) -> bool:
        """Whether enough live relays hold every chunk."""
        self.view.forget_silent(now - self._config.relay_seconds)
        return bool((self.view.copies >= self._config.copies_enough).all())

    def _copies(self, chunk: int) -> tuple[int, int]:
        # What was sent becomes a copy before anybody says so.
        copies = int(self.view.copies[chunk])
        return (max(copies, self.sent[chunk]), self.sent[chunk])
