"""The directory of who holds which weights: told by announcements, forgetful, and right again after a round."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from robustrl.managers.holders import TTL_SECONDS, HolderMessage, Holders

ROOT, OTHER = "a" * 32, "b" * 32


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def message(address: str, have: str = "ff") -> HolderMessage:
    return HolderMessage(address=address, host="h", chunk_count=8, have=have)


def test_each_holder_hears_of_the_others_and_what_they_have() -> None:
    holders = Holders(Clock())
    assert holders.announce(ROOT, message("1.1.1.1:1", "00")) == {"holders": []}
    answer = holders.announce(ROOT, message("1.1.1.1:2", "0f"))
    assert answer == {"holders": [{"address": "1.1.1.1:1", "host": "h", "have": "00"}]}
    holders.announce(ROOT, message("1.1.1.1:1", "03"))
    assert holders.announce(ROOT, message("1.1.1.1:2", "0f"))["holders"][0]["have"] == "03"


def test_versions_are_kept_apart() -> None:
    holders = Holders(Clock())
    holders.announce(ROOT, message("1.1.1.1:1"))
    assert holders.announce(OTHER, message("1.1.1.1:2")) == {"holders": []}


def test_silent_holders_are_forgotten() -> None:
    clock = Clock()
    holders = Holders(clock)
    holders.announce(ROOT, message("1.1.1.1:1"))
    clock.now += TTL_SECONDS + 1
    assert holders.announce(ROOT, message("1.1.1.1:2")) == {"holders": []}
    assert holders.coverage(ROOT).holders == 1


def test_coverage_counts_copies() -> None:
    holders = Holders(Clock())
    holders.announce(ROOT, message("1.1.1.1:1", "ff"))
    holders.announce(ROOT, message("1.1.1.1:2", "0f"))
    coverage = holders.coverage(ROOT)
    assert (coverage.holders, coverage.complete, coverage.fewest_copies) == (2, 1, 1)
    assert coverage.mean_copies == pytest.approx(1.5)


@pytest.mark.parametrize("have", ["f", "zz", "ff" * 40_000])
def test_what_is_no_bitmap_is_refused(have: str) -> None:
    with pytest.raises(ValidationError):
        message("1.1.1.1:1", have)


def test_more_bits_than_chunks_are_dropped() -> None:
    holders = Holders(Clock())
    holders.announce(ROOT, HolderMessage(address="1.1.1.1:1", chunk_count=4, have="ff"))
    assert holders.coverage(ROOT).mean_copies == 1.0


def test_holder_that_two_have_quarantined_is_named_to_nobody_until_they_forgive() -> None:
    clock = Clock()
    holders = Holders(clock)
    bad = "1.1.1.1:1"
    holders.announce(ROOT, message(bad))
    holders.announce(ROOT, accusing("1.1.1.1:2", bad))
    assert bad in holders.addresses(ROOT), "one may be wrong itself"
    answer = holders.announce(ROOT, accusing("1.1.1.1:3", bad))
    assert [other["address"] for other in answer["holders"]] == ["1.1.1.1:2"]
    assert bad not in holders.addresses(ROOT)
    clock.now += TTL_SECONDS + 1
    holders.announce(ROOT, message(bad))
    assert holders.addresses(ROOT) == [bad]


def accusing(address: str, *quarantined: str) -> HolderMessage:
    return HolderMessage(address=address, chunk_count=8, have="ff", quarantined=quarantined)


@pytest.mark.parametrize("address", ["", "nobody", "10.0.0.1:0", "10.0.0.1:99999", ":8400"])
def test_a_holder_without_an_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError):
        message(address)


def test_a_holder_that_says_it_has_more_chunks_than_there_are_harms_nobody() -> None:
    holders = Holders(Clock())
    holders.announce(ROOT, HolderMessage(address="6.6.6.6:6", chunk_count=4096, have="ff" * 512))
    assert holders.announce(ROOT, message("1.1.1.1:1", "00"))["holders"][0]["have"] == "ff"


def test_a_thousand_pullers_that_tell_twice_a_second_leave_the_managers_time_for_others() -> None:
    clock, holders = Clock(), Holders()
    names = [f"10.0.{number // 250}.{number % 250}:8400" for number in range(1000)]
    for name in names:
        holders.announce(ROOT, message(name))
    began = time.process_time()
    for name in names:
        clock.now += 0.0005
        holders.announce(ROOT, message(name))
    assert time.process_time() - began < 0.5, "half a second has passed for them"
