"""What to ask for next, and whom: local rarest first.

1. Of the chunks that are wanted and that a usable holder has, take one with the fewest copies, at random among equals:
   what is rare must spread before its holders die or are swamped, and equal rarity must not send all to one place.
2. Of its holders prefer one on the same host, then any but the publisher, then the least complete one, which is the
   least asked; at random among equals.
3. Name more chunks that this holder has, rarest first, for it to choose from.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from weightsync.swarm.chunk_set import ChunkSet, Numbers, numbers


class Holder(Protocol):
    """Whom a request may go to."""

    @property
    def name(self) -> str: ...
    @property
    def same_host(self) -> bool: ...
    @property
    def publisher(self) -> bool: ...
    @property
    def have(self) -> ChunkSet: ...


@dataclass(frozen=True, slots=True)
class Choice:
    holder: str
    candidates: tuple[int, ...]
    """In order of preference; never empty."""


def choose(
    wanted: ChunkSet, holders: Sequence[Holder], copies: npt.ArrayLike, limit: int, rng: random.Random
) -> Choice | None:
    """The next request; None where no holder has anything wanted.

    Args:
        copies: how many copies of each chunk are known of.
        limit: the most candidates to name.
    """
    offered = 0
    for holder in holders:
        offered |= holder.have
    counts = np.asarray(copies, np.int64)
    rare = rarest(numbers(wanted & offered), counts, 1, rng)
    if not rare:
        return None
    bit = 1 << rare[0]
    best = min((holder for holder in holders if holder.have & bit), key=lambda holder: _preference(holder, rng))
    others = rarest(numbers(wanted & best.have & ~bit), counts, limit - 1, rng)
    return Choice(best.name, (*rare, *others))


def rarest(chunks: Numbers, copies: Numbers, most: int, rng: random.Random) -> list[int]:
    """So many of the chunks: those with the fewest copies, in that order, at random among equals."""
    found: list[int] = []
    counts = copies[chunks]
    while len(found) < most and len(chunks):
        fewest = counts == counts.min()
        equals = chunks[fewest]
        picked = rng.sample(range(len(equals)), min(most - len(found), len(equals)))
        found += equals[picked].tolist()
        chunks, counts = chunks[~fewest], counts[~fewest]
    return found


def _preference(holder: Holder, rng: random.Random) -> tuple[bool, bool, int, float]:
    return (not holder.same_host, holder.publisher, holder.have.bit_count(), rng.random())
