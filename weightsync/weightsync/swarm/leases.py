"""Upload slots as leases: how many requests a holder serves at a time, and in which order.

Invariants:
- never more leases than slots; never more requests waiting than `waiting`;
- the next lease goes to the waiting puller that was served longest ago, so one that keeps asking is served after at
  most one lease for each other puller: nobody starves, and nobody who asks twice as often gets twice as much;
- a lease ends with its transfer, with its puller's connection, or when its time is over: a short time to accept an
  offer, then a few times what transfers from here usually take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto


class Turn(Enum):
    """What becomes of a request."""

    GRANTED = auto()
    WAITING = auto()
    BUSY = auto()


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request for a slot: who asks, on which of its connections, and which of its requests it is."""

    puller: str
    connection: int
    attempt: int


@dataclass(frozen=True)
class Ruling:
    """What follows from an event: leases that begin, and waiting requests that are turned away."""

    granted: tuple[Ticket, ...] = ()
    refused: tuple[Ticket, ...] = ()


@dataclass(slots=True)
class _Lease:
    since: float
    until: float
    accepted: bool


PATIENCE = 4.0
"""Times the usual duration that a transfer may take."""
WEIGHT = 0.3
"""Of the newest transfer in the moving average of their durations."""


@dataclass
class Leases:
    """The upload slots of one holder, for all versions it holds.

    Args:
        slots: leases at a time.
        waiting: requests kept for when a slot is free.
        least_seconds: for any transfer.
        offer_seconds: for a puller to accept what it is offered.
    """

    slots: int
    waiting: int
    least_seconds: float
    offer_seconds: float
    usual_seconds: float | None = None
    """Moving average of how long transfers took."""
    _held: dict[Ticket, _Lease] = field(default_factory=dict)
    _queue: list[Ticket] = field(default_factory=list)
    _next: Ticket | None = None
    """A request that waits only as long as nobody else does."""
    _served: dict[str, int] = field(default_factory=dict)
    _grants: int = 0

    @property
    def in_use(self) -> int:
        return len(self._held)

    @property
    def free(self) -> bool:
        """Whether a request would be served at once."""
        return self.in_use < self.slots

    def holds(self, ticket: Ticket) -> bool:
        """Whether this request has a slot."""
        return ticket in self._held

    def sending(self, ticket: Ticket) -> bool:
        """Whether its transfer has begun."""
        return ticket in self._held and self._held[ticket].accepted

    @property
    def queued(self) -> int:
        return len(self._queue)

    def ask(self, now: float, ticket: Ticket, *, next_only: bool = False, alone: bool = False) -> tuple[Turn, Ruling]:
        """A request comes in. A full queue makes room for a puller that has waited longer than one in it.

        Args:
            next_only: the request may only wait as long as nobody else does: its puller would rather look elsewhere.
        """
        if self.free:
            self._grant(now, ticket)
            return Turn.GRANTED, Ruling()
        if next_only:
            return self._wait_as_next(ticket)
        if self._next is not None:
            displaced, self._next = self._next, None
            self._queue.append(ticket)
            return Turn.WAITING, Ruling(refused=(displaced,))
        if len(self._queue) < self.waiting:
            self._queue.append(ticket)
            return Turn.WAITING, Ruling()
        latest = max(self._queue, key=self._last_served, default=None)
        if latest is None or self._last_served(latest) <= self._last_served(ticket):
            return Turn.BUSY, Ruling()
        self._queue.remove(latest)
        self._queue.append(ticket)
        return Turn.WAITING, Ruling(refused=(latest,))

    def _wait_as_next(self, ticket: Ticket) -> tuple[Turn, Ruling]:
        if self._queue or self._next is not None:
            return Turn.BUSY, Ruling()
        self._next = ticket
        return Turn.WAITING, Ruling()

    def accepted(self, now: float, ticket: Ticket, first_seconds: float) -> bool:
        """The transfer begins. False if the offer is not open any more.

        Args:
            first_seconds: what it may take while it is not known how long transfers usually do.
        """
        lease = self._held.get(ticket)
        if lease is None:
            return False
        usual = self.usual_seconds
        seconds = max(self.least_seconds, first_seconds if usual is None else PATIENCE * usual)
        lease.since, lease.until, lease.accepted = now, now + seconds, True
        return True

    def done(self, now: float, ticket: Ticket) -> Ruling:
        """A transfer ended; or a waiting request, or an offer, is not wanted any more."""
        lease = self._held.pop(ticket, None)
        if lease is not None and lease.accepted:
            seconds = now - lease.since
            usual = seconds if self.usual_seconds is None else self.usual_seconds
            self.usual_seconds = usual + WEIGHT * (seconds - usual)
        if ticket in self._queue:
            self._queue.remove(ticket)
        if self._next == ticket:
            self._next = None
        return Ruling(granted=self._fill(now))

    def gone(self, now: float, connection: int) -> Ruling:
        """A puller's connection is closed. Its place in the order of service stays: connecting anew wins nothing."""
        self._held = {ticket: lease for ticket, lease in self._held.items() if ticket.connection != connection}
        self._queue = [ticket for ticket in self._queue if ticket.connection != connection]
        if self._next is not None and self._next.connection == connection:
            self._next = None
        return Ruling(granted=self._fill(now))

    def expire(self, now: float) -> Ruling:
        """Take back what has been held for too long; those tickets are `refused`.

        A transfer among them may have been slow, and not its puller dead: the next one is not held to what was usual.
        """
        over = tuple(ticket for ticket, lease in self._held.items() if lease.until <= now)
        if any(self._held[ticket].accepted for ticket in over):
            self.usual_seconds = None
        for ticket in over:
            del self._held[ticket]
        return Ruling(granted=self._fill(now), refused=over)

    def next_expiry(self) -> float | None:
        return min((lease.until for lease in self._held.values()), default=None)

    def _fill(self, now: float) -> tuple[Ticket, ...]:
        granted = []
        while self._queue and self.free:
            ticket = min(self._queue, key=self._last_served)  # the first of equals: it came first
            self._queue.remove(ticket)
            self._grant(now, ticket)
            granted.append(ticket)
        if self._next is not None and self.free:
            granted.append(self._next)
            self._grant(now, self._next)
            self._next = None
        return tuple(granted)

    def _grant(self, now: float, ticket: Ticket) -> None:
        self._grants += 1
        self._served[ticket.puller] = self._grants
        self._held[ticket] = _Lease(now, now + self.offer_seconds, accepted=False)

    def _last_served(self, ticket: Ticket) -> int:
        return self._served.get(ticket.puller, 0)
