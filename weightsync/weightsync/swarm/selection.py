"""What to ask for next, and whom: local rarest first.

1. Of the chunks that are wanted and that a usable holder has, take one with the fewest copies, at random among equals:
   what is rare must spread before its holders die or are swamped, and equal rarity must not send all to one place.
2. Of its holders prefer one on the same host, then any but the publisher, then the least complete one, which is the
   least asked; at random among equals.
3. Name more chunks that this holder has, rarest first, for it to choose from.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from weightsync.swarm.chunk_set import ChunkSet, members


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
    wanted: ChunkSet, holders: Sequence[Holder], copies: Sequence[int], limit: int, rng: random.Random
) -> Choice | None:
    """The next request; None where no holder has anything wanted.

    Args:
        copies: how many copies of each chunk are known of.
        limit: the most candidates to name.
    """
    offered = 0
    for holder in holders:
        offered |= holder.have
    rare = rarest(wanted & offered, copies)
    if not rare:
        return None
    first = rng.choice(rare)
    bit = 1 << first
    best = min((holder for holder in holders if holder.have & bit), key=lambda holder: _preference(holder, rng))
    return Choice(best.name, _with_others(first, wanted & best.have & ~bit, copies, limit, rng))


def rarest(chunks: ChunkSet, copies: Sequence[int]) -> list[int]:
    """Those of the chunks that have the fewest copies."""
    found: list[int] = []
    fewest = -1
    for chunk in members(chunks):
        count = copies[chunk]
        if count < fewest or fewest < 0:
            fewest, found = count, [chunk]
        elif count == fewest:
            found.append(chunk)
    return found


def _preference(holder: Holder, rng: random.Random) -> tuple[bool, bool, int, float]:
    return (not holder.same_host, holder.publisher, holder.have.bit_count(), rng.random())


def _with_others(
    first: int, others: ChunkSet, copies: Sequence[int], limit: int, rng: random.Random
) -> tuple[int, ...]:
    if limit <= 1 or not others:
        return (first,)
    return (first, *in_order(members(others), copies, rng)[: limit - 1])


def in_order(chunks: Iterable[int], copies: Sequence[int], rng: random.Random) -> list[int]:
    """Rarest first, at random among equals."""
    shuffled = list(chunks)
    rng.shuffle(shuffled)
    shuffled.sort(key=copies.__getitem__)
    return shuffled
