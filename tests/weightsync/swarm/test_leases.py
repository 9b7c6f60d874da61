"""Upload slots: never more than there are, served in turn, taken back when their time is over."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from weightsync.swarm.leases import Leases, Ticket, Turn


def leases(slots: int = 1, waiting: int = 2) -> Leases:
    return Leases(slots, waiting, least_seconds=2.0, offer_seconds=0.25)


def ticket(puller: str, attempt: int = 1, connection: int = 0) -> Ticket:
    return Ticket(puller, connection or ord(puller[0]), attempt)


def test_requests_beyond_slots_and_queue_are_told_busy() -> None:
    slots = leases(slots=1, waiting=1)
    assert [slots.ask(0.0, ticket(name))[0] for name in "abc"] == [Turn.GRANTED, Turn.WAITING, Turn.BUSY]


def test_slot_goes_to_who_was_served_longest_ago() -> None:
    slots = leases()
    slots.ask(0.0, ticket("a", 1))
    slots.ask(0.0, ticket("a", 2))
    slots.ask(0.0, ticket("b", 1))
    assert slots.done(1.0, ticket("a", 1)).granted == (ticket("b", 1),)
    assert slots.done(2.0, ticket("b", 1)).granted == (ticket("a", 2),)


def test_full_queue_makes_room_for_who_has_waited_longer() -> None:
    slots = leases(waiting=1)
    slots.ask(0.0, ticket("a", 1))
    slots.ask(0.0, ticket("a", 2))
    turn, ruling = slots.ask(0.0, ticket("b"))
    assert turn is Turn.WAITING
    assert ruling.refused == (ticket("a", 2),)


def test_who_only_wants_to_go_on_makes_room_for_anybody() -> None:
    slots = leases()
    slots.ask(0.0, ticket("a", 1))
    assert slots.ask(0.0, ticket("a", 2), next_only=True)[0] is Turn.WAITING
    assert slots.ask(0.0, ticket("b"))[1].refused == (ticket("a", 2),)
    assert slots.ask(0.0, ticket("c"), next_only=True)[0] is Turn.BUSY


def test_offer_that_nobody_accepts_is_over_soon_and_a_transfer_later() -> None:
    slots = leases()
    slots.ask(0.0, ticket("a"))
    assert slots.expire(0.2).refused == ()
    assert slots.expire(0.25).refused == (ticket("a"),)
    assert not slots.accepted(0.3, ticket("a"), 9.9), "too late"
    slots.ask(1.0, ticket("b"))
    assert slots.accepted(1.1, ticket("b"), 9.9)
    assert slots.expire(10.9).refused == ()
    assert slots.expire(11.1).refused == (ticket("b"),)


def test_later_transfers_may_take_four_times_the_usual_and_two_seconds() -> None:
    slots = leases()
    for usual, limit in ((0.1, 2.0), (5.0, None)):
        slots.usual_seconds = None
        slots.ask(0.0, ticket("a", 1))
        slots.accepted(0.0, ticket("a", 1), 1.0)
        slots.done(usual, ticket("a", 1))
        slots.ask(usual, ticket("a", 2))
        slots.accepted(usual, ticket("a", 2), 1.0)
        assert slots.next_expiry() == usual + (limit if limit is not None else 4 * usual)
        slots.done(usual, ticket("a", 2))


def test_a_transfer_that_was_late_is_no_reason_to_cut_off_the_next() -> None:
    slots = leases()
    slots.ask(0.0, ticket("a"))
    slots.accepted(0.0, ticket("a"), 10.0)
    slots.done(1.0, ticket("a"))
    slots.ask(1.0, ticket("b"))
    slots.accepted(1.0, ticket("b"), 10.0)
    assert slots.expire(5.0).refused == (ticket("b"),), "four times the usual"
    slots.ask(6.0, ticket("c"))
    slots.accepted(6.0, ticket("c"), 10.0)
    assert slots.expire(15.9).refused == ()
    assert slots.expire(16.0).refused == (ticket("c"),)


def test_closed_connection_frees_its_slot_and_leaves_the_queue() -> None:
    slots = leases()
    for name in "abc":
        slots.ask(0.0, ticket(name))
    slots.gone(0.0, ticket("b").connection)
    assert slots.gone(0.0, ticket("a").connection).granted == (ticket("c"),)
    assert slots.in_use == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(2, 8), st.integers(0, 2**32))
def test_nobody_who_keeps_asking_starves(slots: int, waiting: int, pullers: int, seed: int) -> None:
    """Pullers that always ask again are served within one lease of every other, whatever the order of events."""
    here, rng = leases(slots, waiting), random.Random(seed)
    names, attempts = [chr(ord("a") + n) for n in range(pullers)], Counter[str]()
    held: list[Ticket] = []
    pending: dict[str, Ticket] = {}
    since: Counter[str] = Counter()
    for _ in range(300):
        for name in rng.sample(names, len(names)):
            if name in pending or any(t.puller == name for t in held):
                continue
            attempts[name] += 1
            asked = ticket(name, attempts[name])
            turn, ruling = here.ask(0.0, asked)
            for refused in ruling.refused:
                pending.pop(refused.puller)
            if turn is Turn.GRANTED:
                held.append(asked)
                since[name] = 0
            elif turn is Turn.WAITING:
                pending[name] = asked
        assert here.in_use == len(held) <= slots
        assert here.queued <= waiting
        done = held.pop(rng.randrange(len(held)))
        since[done.puller] = 0
        for granted in here.done(0.0, done).granted:
            pending.pop(granted.puller)
            held.append(granted)
            since.update(names)
            since[granted.puller] = 0
        unserved = set(names) - {each.puller for each in held}
        assert all(since[name] <= 2 * pullers + slots for name in unserved), since
