"""What one holder serves, over all versions that it holds: every request ends in a chunk sent or in a refusal.

Ties together the slots (`Leases`) and what there is to give (`Offering`): the chunk is picked when the request's turn
comes, because by then more may be known about what is rare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.leases import Leases, Ruling, Ticket, Turn
from weightsync.swarm.offering import Decline, Offering


class Refusal(Enum):
    BUSY = auto()
    """Every slot is taken; who was told so hears when one is free."""
    RELIEVED = auto()
    """A publisher leaves this to its relays."""
    LACKING = auto()
    """The version is here, none of the chunks asked for is."""
    GONE = auto()
    """The version is not here."""
    CANCELLED = auto()
    """The puller does not want it any more."""
    REVOKED = auto()
    """The transfer took longer than its lease: its connection must be closed."""


@dataclass(frozen=True, slots=True)
class Send:
    """Tell the puller the chunk. If `ready`, send it at once, and report `sent` then. Otherwise it is an offer:
    report `accepted`, or `sent` if it is declined."""

    ticket: Ticket
    chunk: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    ticket: Ticket
    reason: Refusal


Answer = Send | Refuse


@dataclass(frozen=True, slots=True)
class _Wish:
    root: str
    candidates: tuple[int, ...]
    last_resort: bool
    ready: bool


class Uploads:
    """The upload side of one holder."""

    def __init__(self, config: SwarmConfig) -> None:
        slots = config.upload_slots
        self.leases = Leases(
            slots,
            slots * config.waiting_per_slot,
            least_seconds=config.stall_seconds,
            offer_seconds=config.offer_seconds,
        )
        self._config = config
        self.offers: dict[str, Offering] = {}
        """By the root digest of the version."""
        self._wishes: dict[Ticket, _Wish] = {}

    def ask(
        self,
        now: float,
        ticket: Ticket,
        root: str,
        candidates: tuple[int, ...],
        *,
        last_resort: bool = False,
        ready: bool = True,
    ) -> list[Answer]:
        """A puller asks for one of these chunks of a version."""
        offer = self.offers.get(root)
        if offer is None:
            return [Refuse(ticket, Refusal.GONE)]
        if not any(offer.have >> chunk & 1 for chunk in candidates):
            return [Refuse(ticket, Refusal.LACKING)]
        self._wishes[ticket] = _Wish(root, candidates, last_resort, ready)
        turn, ruling = self.leases.ask(now, ticket, next_only=ready)
        if turn is Turn.BUSY:
            return [self._refuse(ticket, Refusal.BUSY)]
        answers = self._carry_out(now, ruling)
        return [*answers, *self._begin(now, ticket)] if turn is Turn.GRANTED else answers

    def accepted(self, now: float, ticket: Ticket) -> bool:
        """A puller takes what it was offered. False if that came too late: there is nothing to send then."""
        wish = self._wishes.get(ticket)
        offer = self.offers.get(wish.root) if wish is not None else None
        size = offer.chunk_bytes if offer is not None else 0
        return self.leases.accepted(now, ticket, self._config.first_seconds(size))

    def sent(self, now: float, ticket: Ticket) -> list[Answer]:
        """A transfer ended, or its request is not wanted any more."""
        self._wishes.pop(ticket, None)
        return self._carry_out(now, self.leases.done(now, ticket))

    def cancel(self, now: float, ticket: Ticket) -> list[Answer]:
        """A request that may still be waiting is not wanted any more. One that is being served goes on."""
        if ticket not in self._wishes or self.leases.holds(ticket):
            return []
        self.leases.done(now, ticket)
        ready = self._wishes[ticket].ready
        refusal = self._refuse(ticket, Refusal.CANCELLED)
        return [refusal] if ready else []  # an offer that crossed the cancellation would be declined

    def knows(self, ticket: Ticket) -> bool:
        """Whether this request waits or is served."""
        return ticket in self._wishes

    def gone(self, now: float, connection: int) -> list[Answer]:
        """A connection is closed; the requests on it need no answer."""
        for ticket in [ticket for ticket in self._wishes if ticket.connection == connection]:
            del self._wishes[ticket]
        return self._carry_out(now, self.leases.gone(now, connection))

    def expire(self, now: float) -> list[Answer]:
        """Take back the slots of offers that nobody accepts and of transfers that take too long."""
        begun = {ticket for ticket in self._wishes if self.leases.sending(ticket)}
        ruling = self.leases.expire(now)
        over = [self._refuse(ticket, Refusal.REVOKED if ticket in begun else Refusal.BUSY) for ticket in ruling.refused]
        return [*over, *self._carry_out(now, Ruling(granted=ruling.granted))]

    def _carry_out(self, now: float, ruling: Ruling) -> list[Answer]:
        answers: list[Answer] = [self._refuse(ticket, Refusal.BUSY) for ticket in ruling.refused]
        return [*answers, *self._begin_all(now, ruling.granted)]

    def _begin_all(self, now: float, granted: Iterable[Ticket]) -> list[Answer]:
        return [answer for ticket in granted for answer in self._begin(now, ticket)]

    def _begin(self, now: float, ticket: Ticket) -> list[Answer]:
        """Pick the chunk for a request whose turn it is. Where there is none, the slot goes to the next."""
        wish = self._wishes[ticket]
        picked = self._pick(now, wish)
        if isinstance(picked, int):
            if wish.ready:
                self.accepted(now, ticket)
            return [Send(ticket, picked, wish.ready)]
        return [self._refuse(ticket, picked), *self._carry_out(now, self.leases.done(now, ticket))]

    def _pick(self, now: float, wish: _Wish) -> int | Refusal:
        offer = self.offers.get(wish.root)
        if offer is None:
            return Refusal.GONE
        picked = offer.pick(now, wish.candidates, last_resort=wish.last_resort)
        if isinstance(picked, int):
            return picked
        return Refusal.LACKING if picked is Decline.LACKING else Refusal.RELIEVED

    def _refuse(self, ticket: Ticket, reason: Refusal) -> Refuse:
        self._wishes.pop(ticket, None)
        return Refuse(ticket, reason)
