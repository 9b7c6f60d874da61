"""The swarm's constants, in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SwarmConfig:
    """How eager and how patient a replica is. The defaults suit chunks of 256 KiB to 64 MiB on 1 to 400 Gbit/s."""

    upload_slots: int = 3
    """Requests a holder serves at a time. One TCP flow does not fill a link from its first byte, three do; where one
    transfer does (RDMA), one is better: a chunk is passed on as soon as it is whole."""
    waiting_per_slot: int = 2
    """Requests kept waiting for a slot, so that it is never idle; further ones are told BUSY at once."""
    called_back: int = 4
    """Pullers told that a slot is free, of those that were told BUSY."""
    offer_seconds: float = 0.25
    """For a puller to accept a chunk; then the slot goes to the next."""
    requests_per_source: int = 3
    """Chunks of one source on their way: one arrives, the next is about to, and the last is verified."""
    transfers: int = 3
    """Chunks on their way to a puller at a time, from different holders where there are: as many as there are slots."""
    requests_waiting: int = 16
    """Sources asked at a time for the next chunk; the first to have a slot gives it. Waiting costs no buffer."""
    lookahead: float = 0.98
    """Part of a chunk's expected time after which the next is looked for at other sources as well."""
    candidates: int = 16
    """Chunks a request names; the holder picks among them, because it knows better which it has sent already."""
    sources: int = 16
    """Connections a puller keeps. It chooses half of them, and up to an eighth are publishers; the rest is for peers
    that pull from it, so that those who come late are asked as much as those who came first."""
    review_seconds: float = 0.5
    """How often it is thought over whom to be connected to, while there are others."""
    rotate_seconds: float = 1.0
    """Least time between two sources that are left because nobody connected has anything that is missing."""
    connect_seconds: float = 10.0
    tries: int = 3
    """Failures in a row after which a source rests for `rest_seconds`."""
    retry_seconds: float = 0.1
    """First wait after a failure; doubles, and is jittered."""
    rest_seconds: float = 10.0
    stall_seconds: float = 2.0
    """Least time for a chunk before its source, or its puller, counts as stalled; else four times the usual."""
    slowest_bytes_per_second: float = 10e6
    """Of a link, assumed where nothing has been sent yet: of a source by its puller, and of a puller by its source."""
    busy_seconds: float = 0.002
    """First wait after BUSY where the duration of a chunk is not known yet."""
    longest_busy_seconds: float = 0.5
    endgame_chunks: int = 2
    """With this few left, a request that takes twice the median is made a second time elsewhere."""
    strikes: int = 2
    """Damaged chunks from one source after which nothing is taken from it any more."""
    copies_enough: int = 2
    """Copies of a chunk among live relays after which the publisher leaves it to them."""
    relay_seconds: float = 10.0
    """A relay not heard of for this long is not counted on."""

    @property
    def most_transfers(self) -> int:
        """Chunks on their way to a puller whose link is filled: those that fill it, and one behind each."""
        return 2 * self.transfers

    def first_seconds(self, size_bytes: int) -> float:
        """What a chunk may take where nothing has been sent yet: all the others that may share its link come too."""
        shared = max(self.upload_slots, self.most_transfers)
        return max(self.stall_seconds, shared * size_bytes / self.slowest_bytes_per_second)


ONE_FLOW = SwarmConfig(upload_slots=1, transfers=1)
"""For links that one transfer fills."""
