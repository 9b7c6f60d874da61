"""What is asked for and of whom, and what a holder gives."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

from weightsync.swarm import chunk_set
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.offering import Decline, Offering
from weightsync.swarm.peer import Peer
from weightsync.swarm.selection import choose
from weightsync.swarm.strikes import Strikes
from weightsync.swarm.view import SwarmView


@dataclass
class Someone:
    name: str
    have: int
    same_host: bool = False
    publisher: bool = False


ALL = chunk_set.full(4)


@pytest.mark.parametrize(
    ("holders", "copies", "wanted", "asked", "first"),
    [
        pytest.param([Someone("a", 0b1111)], [3, 1, 2, 2], ALL, "a", 1, id="the rarest"),
        pytest.param([Someone("a", 0b1101)], [3, 1, 2, 4], ALL, "a", 2, id="the rarest that can be had"),
        pytest.param([Someone("a", 0b1111)], [3, 1, 2, 4], 0b1001, "a", 0, id="only what is wanted"),
        pytest.param(
            [Someone("far", 0b1), Someone("near", 0b1111, same_host=True)], [1, 9, 9, 9], ALL, "near", 0, id="same host"
        ),
        pytest.param(
            [Someone("p", 0b1111, publisher=True), Someone("r", 0b1111)], [1, 9, 9, 9], ALL, "r", 0, id="publisher last"
        ),
        pytest.param([Someone("full", 0b1111), Someone("new", 0b1)], [1, 9, 9, 9], ALL, "new", 0, id="least complete"),
    ],
)
def test_choice(holders: list[Someone], copies: list[int], wanted: int, asked: str, first: int) -> None:
    choice = choose(wanted, holders, copies, 4, random.Random(1))
    assert choice is not None
    assert (choice.holder, choice.candidates[0]) == (asked, first)
    have = next(holder.have for holder in holders if holder.name == asked)
    assert all(have >> chunk & wanted >> chunk & 1 for chunk in choice.candidates)


def test_nothing_to_choose_from() -> None:
    assert choose(0b1, [Someone("a", 0b10)], [1, 1], 4, random.Random(1)) is None
    assert choose(0b1, [], [1, 1], 4, random.Random(1)) is None


def test_equally_rare_chunks_are_taken_at_random() -> None:
    taken = set()
    for seed in range(50):
        choice = choose(ALL, [Someone("a", ALL)], [1] * 4, 1, random.Random(seed))
        assert choice is not None
        taken.add(choice.candidates)
    assert taken == {(0,), (1,), (2,), (3,)}


def test_a_hundred_thousand_chunks_are_chosen_from_as_few_are() -> None:
    count = 112_000  # 470 GB in chunks of 4 MiB
    view = SwarmView(count)
    began = time.process_time()
    for name in "abcd":
        view.heard(0.0, Peer(name), chunk_set.full(count))
    holders = [Someone(name, chunk_set.full(count)) for name in "abcd"]
    for seed in range(20):
        choice = choose(chunk_set.full(count), holders, view.copies, 16, random.Random(seed))
        assert choice is not None
        assert len(set(choice.candidates)) == 16
    assert time.process_time() - began < 5.0, "a second each where every bit is looked at by itself"


def offering(*, publisher: bool = True, have: int = ALL) -> Offering:
    return Offering(SwarmView(4), random.Random(1), chunk_bytes=1, publisher=publisher, have=have, config=SwarmConfig())


def test_publisher_sends_everything_once_before_anything_twice() -> None:
    offer = offering()
    assert {offer.pick(0.0, (0, 1, 2, 3)) for _ in range(4)} == {0, 1, 2, 3}


def test_publisher_leaves_to_relays_what_they_have_unless_it_is_the_last_resort() -> None:
    offer = offering()
    for name in ("a", "b"):
        offer.view.heard(0.0, Peer(name), 0b0011)
    assert offer.pick(1.0, (0, 1)) is Decline.RELIEVED
    assert offer.pick(1.0, (0, 1, 2)) == 2
    assert offer.pick(1.0, (0, 1), last_resort=True) in (0, 1)
    assert offer.pick(1.0 + SwarmConfig().relay_seconds, (0,)) == 0, "relays not heard of any more do not count"


def test_relay_is_never_relieved() -> None:
    offer = offering(publisher=False)
    for name in ("a", "b", "c"):
        offer.view.heard(0.0, Peer(name), ALL)
    assert offer.pick(0.0, (3,)) == 3


def test_what_is_not_here_is_not_given() -> None:
    assert offering(have=0b1).pick(0.0, (1, 2)) is Decline.LACKING
    assert offering().pick(0.0, (77,)) is Decline.LACKING, "no such chunk"


def test_view_counts_relays_and_forgets() -> None:
    view = SwarmView(4)
    view.heard(0.0, Peer("p", publisher=True), ALL)
    view.heard(0.0, Peer("a"), 0b0011)
    view.heard(1.0, Peer("a"), 0b0110)
    assert view.copies.tolist() == [0, 1, 1, 0]
    view.forget_silent(0.5)
    assert view.copies.tolist() == [0, 1, 1, 0]
    view.forget("a")
    assert view.copies.tolist() == [0, 0, 0, 0]


def test_two_strikes_and_their_end() -> None:
    strikes = Strikes(limit=2, forgiven_after_seconds=10.0)
    assert not strikes.strike(0.0, "a")
    assert strikes.strike(1.0, "a")
    assert strikes.names(5.0) == {"a"}
    assert not strikes.quarantined(12.0, "a")
