"""A pull as a state machine: what was heard goes in, what to do comes out.

The driver reports each event with its time and carries out the actions that it returns; it calls `tick` at
`next_wake`. Whatever order events come in, late or for requests long given up, the state stays right: a chunk counts
when it was verified, and only then.

    events                                             actions
    heard_of, connected, connect_failed, have_heard    Connect
    answered, verified, damaged                        Ask
    refused, lacking, gone, lost                       Leave
    tick

A pull ends DONE or DROPPED (its version is void). Otherwise it runs, and where it gets nothing `unavailable` says
which chunks no source in reach has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from weightsync.swarm.chunk_set import ChunkSet, full, members, of
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.pace import Pace
from weightsync.swarm.peer import Peer
from weightsync.swarm.selection import Holder, choose
from weightsync.swarm.source_state import Phase, SourceState
from weightsync.swarm.strikes import Strikes
from weightsync.swarm.view import SwarmView

HEDGE_AFTER = 2.0
"""Times its expected duration after which one of the last chunks is asked for elsewhere as well."""


class Outcome(Enum):
    RUNNING = auto()
    DONE = auto()
    DROPPED = auto()


class Why(Enum):
    """Why a source is left."""

    STALLED = "no progress by its deadline"
    DAMAGED = "it sent damaged bytes"
    GONE = "it does not hold this version"
    USELESS = "it has nothing that is missing, and others may"


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to a peer and ask what it has; then report `connected` or `connect_failed`."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask an open source for one of these chunks, in this order of preference."""

    source: str
    attempt: int
    candidates: tuple[int, ...]
    last_resort: bool
    """No other source in reach has them: a publisher must not leave them to others."""
    ready: bool
    """The chunk may be sent as soon as there is a slot. Otherwise it is offered, and sent when it is accepted."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Take the chunk that a source offers, or decline it: then the request is answered by a refusal."""

    source: str
    attempt: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell a source that a request which still waits for a slot is not wanted any more. One that was ready is answered
    all the same, by a refusal or, where the slot was given meanwhile, with the chunk; an offer is declined."""

    source: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Close the connection to a source. Its requests are void; nothing more is to be reported of them."""

    source: str
    why: Why


Action = Connect | Ask | Accept | Cancel | Leave


@dataclass(slots=True)
class _Request:
    source: str
    candidates: ChunkSet
    asked_at: float
    deadline: float
    chunk: int | None = None
    """The one that is coming, once the source has chosen."""
    ready: bool = False
    cancelled: bool = False


class PullState:
    """One version being pulled by one replica.

    Args:
        sizes: bytes of each chunk.
        view: what is known of the others; shared with what this replica offers of the version.
        held: chunks that are here already.
        strikes: kept across pulls.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        view: SwarmView,
        me: Peer,
        rng: random.Random,
        *,
        held: ChunkSet = 0,
        strikes: Strikes | None = None,
        config: SwarmConfig | None = None,
    ) -> None:
        self._sizes, self._view, self._me, self._rng = sizes, view, me, rng
        self._config = config or SwarmConfig()
        self.strikes = strikes or Strikes(self._config.strikes)
        self.missing = full(len(sizes)) & ~held
        self.outcome = Outcome.RUNNING if self.missing else Outcome.DONE
        self.pace = Pace()
        self._sources: dict[str, SourceState] = {}
        self._open: dict[str, SourceState] = {}
        """Those of the sources that are connected."""
        self._review_at = 0.0
        """When it is to be thought over again whom to connect to."""
        self._rotate_at = 0.0
        self._requests: dict[int, _Request] = {}
        self._attempts = 0
        self._largest = max(sizes, default=0)

    # What is the case.

    @property
    def have(self) -> ChunkSet:
        """What is here and verified."""
        return full(len(self._sizes)) & ~self.missing

    def unavailable(self) -> ChunkSet:
        """What is missing and no source in reach has."""
        offered = 0
        for source in self._sources.values():
            offered |= source.have
        return self.missing & ~offered

    def hopeless(self, now: float) -> bool:
        """Whether every source known of has failed, is quarantined, or does not hold this version."""
        return all(
            not source.active and (source.spent or source.gone or self._quarantined(now, source))
            for source in self._sources.values()
        )

    def open_sources(self) -> list[str]:
        return list(self._open)

    def next_wake(self, now: float) -> float | None:
        """When `tick` is due, given that it was done for `now`; None while only events can change anything."""
        if self.outcome is not Outcome.RUNNING:
            return None
        times = [s.not_before for s in self._open.values() if s.busy]
        times += [self._spent_at(request) for request in self._requests.values() if request.chunk is not None]
        times.append(self._review_at)
        times = [time for time in times if time > now]
        times += [request.deadline for request in self._requests.values()]
        earliest = min(times, default=math.inf)
        return None if earliest == math.inf else earliest

    # Events.

    def heard_of(self, now: float, peers: Mapping[Peer, ChunkSet] | Iterable[Peer]) -> list[Action]:
        """The directory, or another source, names peers; perhaps with what they had a while ago."""
        known = peers if isinstance(peers, Mapping) else dict.fromkeys(peers, 0)
        for peer, have in known.items():
            if peer.name == self._me.name:
                continue
            source = self._meet(peer)
            if source.gone and source.phase is Phase.RESTING and have & self.missing:
                source.not_before = min(source.not_before, now + self._config.retry_seconds)
            if have and source.phase is Phase.IDLE:
                self._view.heard(now, source.peer, have)
        self._review_at = now
        return self._decide(now)

    def pulled_by(self, now: float, peer: Peer) -> list[Action]:
        """A peer has begun to pull this version from here; it will have something to give in return."""
        if peer.name == self._me.name:
            return []
        source = self._meet(peer)
        source.mutual = True
        if source.gone and source.phase is Phase.RESTING:
            source.not_before = min(source.not_before, now + self._config.retry_seconds)
        self._review_at = now
        return self._decide(now)

    def _meet(self, peer: Peer) -> SourceState:
        source = self._sources.get(peer.name)
        if source is None:
            same_host = bool(peer.host) and peer.host == self._me.host
            source = self._sources[peer.name] = SourceState(peer, same_host=same_host, config=self._config)
        return source

    def connected(self, now: float, name: str, have: ChunkSet) -> list[Action]:
        """A source answers, and has these chunks."""
        source = self._sources.get(name)
        if source is None or source.phase is not Phase.CONNECTING:
            return [Leave(name, Why.USELESS)]
        source.opened(now)
        self._open[name] = source
        return self.have_heard(now, name, have)

    def connect_failed(self, now: float, name: str) -> list[Action]:
        return self.lost(now, name)

    def have_heard(self, now: float, name: str, have: ChunkSet) -> list[Action]:
        """A source tells what it has by now."""
        source = self._open.get(name)
        if source is None:
            return []
        if self.strikes.quarantined(now, name):
            return self._leave(now, source, Why.DAMAGED)
        source.have = have
        self._view.heard(now, source.peer, have)
        return self._decide(now)

    def told(self, now: float, name: str, have: ChunkSet) -> list[Action]:
        """`connected` where it is the source's first word, else `have_heard`."""
        source = self._sources.get(name)
        first = source is not None and source.phase is Phase.CONNECTING
        return self.connected(now, name, have) if first else self.have_heard(now, name, have)

    def slot_free(self, now: float, name: str) -> list[Action]:
        """A source that was busy says that it is not any more."""
        source = self._open.get(name)
        if source is None:
            return []
        source.not_before, source.busy = now, 0
        return self._decide(now)

    def answered(self, now: float, name: str, attempt: int, chunk: int) -> list[Action]:
        """A source has a slot for this replica and has chosen a chunk."""
        request = self._request(name, attempt)
        if request is None:  # cancelled; its answer was on its way
            return [Accept(name, attempt, accepted=False)] if name in self._open else []
        self._sources[name].answered()
        if not request.ready and not self._wants(now, chunk):
            self._close(name, attempt)
            return [Accept(name, attempt, accepted=False)]
        request.chunk, request.candidates, request.cancelled = chunk, 1 << chunk, False
        request.asked_at = now
        request.deadline = now + self._limit_seconds(name, self._sizes[chunk])
        accept: list[Action] = [] if request.ready else [Accept(name, attempt, accepted=True)]
        # Further ones would only share this replica's link.
        cancel = self._cancel_waiting() if len(self._near(now)) >= self._config.transfers else []
        return [*accept, *cancel, *self._decide(now)]

    def _wants(self, now: float, chunk: int) -> bool:
        """Whether there is room for another transfer, and this chunk is not on its way from elsewhere."""
        near = self._near(now)
        room = len(near) < self._config.transfers
        return room and bool(self.missing >> chunk & 1) and not any(r.chunk == chunk for r in near)

    def _near(self, now: float) -> list[_Request]:
        """Transfers that fill the link: neither at their end nor overdue."""
        return [r for r in self._requests.values() if r.chunk is not None and now < self._spent_at(r)]

    def verified(self, now: float, name: str, attempt: int, chunk: int) -> list[Action]:
        """A chunk is here and right. It counts even if its request was given up."""
        request = self._close(name, attempt)
        if request is not None:
            self._sources[name].answered()
            self.pace.arrived(name, self._sizes[chunk], now - request.asked_at)
        self.missing &= ~(1 << chunk)
        if not self.missing and self.outcome is Outcome.RUNNING:
            self.outcome = Outcome.DONE
        return self._decide(now)

    def damaged(self, now: float, name: str, attempt: int) -> list[Action]:
        """What arrived is not what the manifest says: a strike."""
        self._close(name, attempt)
        source = self._sources.get(name)
        if self.strikes.strike(now, name) and source is not None:
            return self._leave(now, source, Why.DAMAGED)
        return self._decide(now)

    def refused(self, now: float, name: str, attempt: int) -> list[Action]:
        """BUSY: no slot, or a publisher leaves these chunks to relays."""
        request = self._close(name, attempt)
        if request is None:
            return []
        if not request.cancelled:
            self._sources[name].refused(now, self.pace.median_seconds(), self._rng)
        return self._decide(now)

    def lacking(self, now: float, name: str, attempt: int, have: ChunkSet) -> list[Action]:
        """The source has none of the chunks asked for, but these."""
        if self._close(name, attempt) is None:
            return []
        return self.have_heard(now, name, have)

    def gone(self, now: float, name: str) -> list[Action]:
        """The source does not hold this version, not yet or not any more."""
        source = self._sources.get(name)
        if source is None or not source.active:
            return []
        source.gone = True
        return self._leave(now, source, Why.GONE)

    def lost(self, now: float, name: str) -> list[Action]:
        """The connection to a source failed, or never came about."""
        source = self._sources.get(name)
        if source is None or not source.active:
            return []
        self._forget(now, source)
        return self._decide(now)

    def _forget(self, now: float, source: SourceState) -> None:
        """A connection is no more: its requests are void, and it rests."""
        for attempt in [attempt for attempt, request in self._requests.items() if request.source == source.name]:
            del self._requests[attempt]
        self._open.pop(source.name, None)
        self._view.forget(source.name)
        source.failed(now, self._rng)
        self._review_at = now

    def drop(self) -> list[Action]:
        """The version is void: its epoch is over, or a newer one is pulled instead. The partial must not serve."""
        if self.outcome is Outcome.RUNNING:
            self.outcome = Outcome.DROPPED
        return []

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        actions: list[Action] = []
        stalled = {request.source for request in self._requests.values() if request.deadline <= now}
        stalled |= {s.name for s in self._sources.values() if s.phase is Phase.CONNECTING and s.not_before <= now}
        for name in sorted(stalled):
            self.pace.forget(name)
            actions += self._leave(now, self._sources[name], Why.STALLED)
        return actions + self._decide(now)

    # Decisions.

    def _decide(self, now: float) -> list[Action]:
        if self.outcome is not Outcome.RUNNING:
            return []
        actions: list[Action] = []
        if self._review_at <= now:
            actions = self._review(now)
        while (ask := self._next_request(now)) is not None:
            actions.append(ask)
        return actions

    def _next_request(self, now: float) -> Ask | None:
        """A few transfers at a time fill this replica's link, and the next must begin when one ends. So until then only
        their own sources are asked, which send one after the other; towards an end, others too; whoever is first
        comes next, and the others are told."""
        requests = self._requests.values()
        if any(request.ready and request.chunk is None for request in requests):
            return None
        asked = {request.source for request in requests if request.chunk is None}
        if len(asked) >= self._config.requests_waiting:
            return None
        coming = [request for request in requests if request.chunk is not None]
        near = self._near(now)
        filling = dict.fromkeys(request.source for request in near) if len(near) >= self._config.transfers else {}
        if filling and len(coming) >= self._config.most_transfers:
            return None
        wanted = self.missing
        for request in near if self._endgame() else coming:
            wanted &= ~request.candidates
        places = [self._sources[name] for name in filling] if filling else self._open.values()
        if any(source.publisher for source in places) and filling and self._relays_have(wanted):
            return None
        usable = [source for source in places if source.usable(now) and source.name not in asked]
        if not usable or not wanted:
            return None
        return self._ask(now, wanted, usable, ready=bool(filling))

    def _ask(self, now: float, wanted: ChunkSet, holders: Sequence[Holder], *, ready: bool) -> Ask | None:
        choice = choose(wanted, holders, self._view.copies, self._config.candidates, self._rng)
        if choice is None:
            return None
        self._attempts += 1
        source = self._sources[choice.holder]
        source.requests += 1
        patience = self._limit_seconds(source.name, self._largest) * (1 + self._config.waiting_per_slot)
        candidates = of(choice.candidates)
        self._requests[self._attempts] = _Request(source.name, candidates, now, now + patience, ready=ready)
        return Ask(source.name, self._attempts, choice.candidates, self._only(source, candidates), ready)

    def _spent_at(self, request: _Request) -> float:
        """When a transfer is so near its end that the next may be arranged; or so late that it is not relied on."""
        assert request.chunk is not None
        usual = self.pace.expected_seconds(request.source, self._sizes[request.chunk])
        if usual is None:
            return request.deadline
        factor = HEDGE_AFTER if self._endgame() else self._config.lookahead
        return request.asked_at + factor * usual

    def _cancel_waiting(self) -> list[Action]:
        waiting = [(n, r) for n, r in self._requests.items() if r.chunk is None and not r.cancelled]
        for attempt, request in waiting:
            if request.ready:
                request.cancelled = True
            else:
                self._close(request.source, attempt)
        return [Cancel(request.source, attempt) for attempt, request in waiting]

    def _only(self, source: SourceState, candidates: ChunkSet) -> bool:
        """Whether no relay in reach has any of these."""
        relays = (other for other in self._open.values() if other is not source and not other.publisher)
        return not any(other.have & candidates for other in relays)

    def _relays_have(self, wanted: ChunkSet) -> bool:
        """Whether a publisher need not be asked next."""
        return any(source.have & wanted for source in self._open.values() if not source.publisher)

    def _endgame(self) -> bool:
        return self.missing.bit_count() <= self._config.endgame_chunks

    def _review(self, now: float) -> list[Action]:
        """Think over whom to be connected to."""
        for source in self._sources.values():
            if source.phase is Phase.RESTING and source.not_before <= now:
                source.phase = Phase.IDLE
        actions = [*self._rotate(now), *self._connect(now)]
        waiting = (Phase.RESTING, Phase.CONNECTING)
        times = [source.not_before for source in self._sources.values() if source.phase in waiting]
        if any(source.phase is Phase.IDLE for source in self._sources.values()):
            times.append(now + self._config.review_seconds)
        self._review_at = min(times, default=math.inf)
        return actions

    def _connect(self, now: float) -> list[Action]:
        """Keep as many connections as allowed: a publisher, the same host's peers, then any."""
        room, chosen, published = self._room()
        if room <= 0:
            return []
        idle = [s for s in self._sources.values() if s.phase is Phase.IDLE and not self._quarantined(now, s)]
        idle.sort(key=lambda source: (not source.same_host, self._rng.random()))
        back = [source for source in idle if source.mutual][:room]
        own = [source for source in idle if not source.mutual and not source.publisher][: max(0, chosen)]
        publishers = [source for source in idle if source.publisher][: max(0, published)]
        picked = [*publishers, *back, *own][:room]
        for source in picked:
            source.connecting(now)
        return [Connect(source.peer) for source in picked]

    def _room(self) -> tuple[int, int, int]:
        """How many more connections there may be: in all, to relays of this replica's choice, to publishers."""
        active = [source for source in self._sources.values() if source.active]
        published = sum(1 for source in active if source.publisher)
        own = sum(1 for source in active if not source.mutual and not source.publisher)
        most = self._config.sources
        return most - len(active), max(1, most // 2) - own, max(1, most // 8) - published

    def _quarantined(self, now: float, source: SourceState) -> bool:
        return self.strikes.quarantined(now, source.name)

    def _rotate(self, now: float) -> list[Action]:
        """Where no connected source has anything missing and no connection is to spare, try somebody else."""
        sources = self._sources.values()
        if self._requests or any(s.active and (s.phase is not Phase.OPEN or s.have & self.missing) for s in sources):
            return []
        active = [source for source in sources if source.active]
        waiting = any(s.phase is Phase.IDLE and not self._quarantined(now, s) for s in sources)
        if not active or not waiting or now < self._rotate_at:
            return []
        self._rotate_at = now + self._config.rotate_seconds
        useless = self._rng.choice(active)
        useless.mutual = False
        self._open.pop(useless.name, None)
        useless.rest(now, self._config.retry_seconds)
        return [Leave(useless.name, Why.USELESS)]

    def _leave(self, now: float, source: SourceState, why: Why) -> list[Action]:
        self._forget(now, source)
        return [Leave(source.name, why), *self._decide(now)]

    # Requests.

    def _request(self, name: str, attempt: int) -> _Request | None:
        request = self._requests.get(attempt)
        return request if request is not None and request.source == name else None

    def _close(self, name: str, attempt: int) -> _Request | None:
        request = self._request(name, attempt)
        if request is not None:
            del self._requests[attempt]
            self._sources[name].requests -= 1
        return request

    def _limit_seconds(self, name: str, size_bytes: int) -> float:
        first = self._config.first_seconds(size_bytes)
        return self.pace.limit_seconds(name, size_bytes, self._config.stall_seconds, first)


def carried_over(before: Sequence[str], have: ChunkSet, after: Sequence[str]) -> dict[int, int]:
    """Which chunks of a new version are here already as chunks of an older one.

    Args:
        before: the digests of the older version's chunks.
        have: which of those are here.
        after: the digests of the new version's.

    Returns:
        New chunk to old chunk.
    """
    here = {before[chunk]: chunk for chunk in members(have)}
    return {chunk: here[digest] for chunk, digest in enumerate(after) if digest in here}
