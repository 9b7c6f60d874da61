"""Pulling a version: chunks from any holder, each verified before it counts, and served to others from then on.

What to ask whom is decided by `swarm.pull_state`; this carries it out over UCX. Chunks arrive in their place: the
destination is a shadow that nobody reads before all of it is verified. A source that fails, stalls or sends a wrong
byte is left for others; what has been verified stays.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from weightsync.link import Link
from weightsync.manifest import BadManifest, Manifest
from weightsync.memory import Memory, memory_of
from weightsync.peers import Peers
from weightsync.source import Source
from weightsync.swarm import chunk_set
from weightsync.swarm.chunk_set import ChunkSet
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.peer import Peer
from weightsync.swarm.pull_state import (
    Accept,
    Action,
    Ask,
    Cancel,
    Connect,
    Leave,
    Outcome,
    PullState,
    Why,
    carried_over,
)
from weightsync.swarm.strikes import Strikes
from weightsync.swarm.view import SwarmView
from weightsync.transport import Address, BufferLost, TransportError
from weightsync.wire import Flag, Kind, Message, Version

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0


class Incomplete(Exception):
    """No holder had the rest. What is missing is in `missing`; what was verified is in the destination."""

    def __init__(self, message: str, missing: frozenset[int]) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Holding:
    """Weights that are here: a version, or part of one.

    Args:
        have: which of its chunks; None for all.
    """

    manifest: Manifest
    data: memoryview | Memory
    have: ChunkSet | None = None


@dataclass(frozen=True, slots=True)
class PullStats:
    """What a pull cost."""

    seconds: float
    bytes_pulled: int
    """Bytes that came over the network and were right; each chunk once."""
    bytes_skipped: int
    """Bytes that were there already: their digest was that of the version held."""
    bytes_wasted: int
    """Bytes that were damaged, or came twice."""
    sources: int
    """That gave at least one chunk."""
    strikes: int
    """Chunks that arrived damaged."""


async def pull(
    manifest: Manifest,
    peers: Peers | Iterable[Address],
    destination: memoryview | Memory,
    *,
    source: Source | None = None,
    me: Peer | None = None,
    held: Holding | None = None,
    strikes: Strikes | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
    config: SwarmConfig | None = None,
) -> PullStats:
    """Fill `destination` with the version.

    Args:
        peers: who holds it. Others that these know of are asked as well.
        destination: writable, of the manifest's size, on the host or a GPU; nobody reads it before this returns.
        source: this replica's own, which serves what has arrived while the rest is still coming, and all of it after.
        me: under which name `source` can be reached.
        held: what is here already; chunks with the same digest are copied from it.
        strikes: against sources, kept from pull to pull.
        patience_seconds: how long to wait for anything to arrive before it is given up.

    Raises:
        Incomplete: nobody had the rest.
        ValueError: the destination is of another size.
    """
    started = time.monotonic()
    target = memory_of(destination)
    if target.size_bytes != manifest.size_bytes:
        raise ValueError(f"the manifest says {manifest.size_bytes} bytes, the destination has {target.size_bytes}")
    have = await _copy_held(manifest, target, held)
    known = peers if isinstance(peers, Peers) else Peers.at(peers)
    running = _Pull(manifest, known, target, have, source, me, strikes, config, patience_seconds)
    await running.run()
    return running.stats(time.monotonic() - started, have)


async def _copy_held(manifest: Manifest, target: Memory, held: Holding | None) -> ChunkSet:
    """Copy the chunks that have not changed; which they are."""
    if held is None:
        return 0
    old, data = held.manifest.chunks, memory_of(held.data)
    have = chunk_set.full(len(old)) if held.have is None else held.have
    same = carried_over([chunk.digest for chunk in old], have, [chunk.digest for chunk in manifest.chunks])
    for new, before in same.items():
        piece = data.piece(old[before].offset, old[before].size_bytes)
        await target.put(manifest.chunks[new].offset, piece)
    return chunk_set.of(same)


class _Pull:
    """One pull that is running."""

    def __init__(
        self,
        manifest: Manifest,
        peers: Peers,
        target: Memory,
        have: ChunkSet,
        source: Source | None,
        me: Peer | None,
        strikes: Strikes | None,
        config: SwarmConfig | None,
        patience_seconds: float,
    ) -> None:
        self._manifest, self._peers, self._target, self._source = manifest, peers, target, source
        self._version = Version(manifest.epoch, manifest.step, manifest.shard, manifest.root)
        self._me, self._patience = me or Peer(""), patience_seconds
        count = len(manifest.chunks)
        self._view = SwarmView(count)
        sizes = [chunk.size_bytes for chunk in manifest.chunks]
        self._state = PullState(sizes, self._view, self._me, random.Random(), held=have, strikes=strikes, config=config)
        self._links: dict[str, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: dict[int, tuple[Link, asyncio.Task[None]]] = {}
        """Chunks whose place in the destination UCX writes to."""
        self._placing: set[int] = set()
        """Those that are copied there."""
        self._offered: dict[tuple[str, int], Message] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._progress_at = time.monotonic()
        self._over = asyncio.Event()
        self._lost: BufferLost | None = None
        self._problems: dict[str, str] = {}
        self._givers: set[str] = set()
        self._wasted = self._damaged = 0

    async def run(self) -> None:
        """Pull until everything is here, or nothing more can be had."""
        if self._source is not None:
            self._source.begin(
                self._manifest, self._target, self._view, pulled_by=lambda peer: self._report("pulled_by", peer)
            )
            self._source.gained(self._manifest.root, self._state.have)
        self._peers.follow(self._news)
        try:
            self._report("tick")
            await self._over.wait()
        finally:
            self._peers.unfollow(self._news)
            await self._close()
        if self._lost is not None:
            raise Incomplete(f"the destination is lost: {self._lost}", self._missing()) from self._lost
        if self._state.outcome is not Outcome.DONE:
            why = "; ".join(f"{name}: {what}" for name, what in self._problems.items()) or "there is no source"
            missing = self._missing()
            raise Incomplete(f"{len(missing)} of {len(self._manifest.chunks)} chunks missing: {why}", missing)

    def stats(self, seconds: float, have: ChunkSet) -> PullStats:
        skipped = sum(self._manifest.chunks[chunk].size_bytes for chunk in chunk_set.members(have))
        pulled = self._manifest.size_bytes - skipped
        return PullStats(seconds, pulled, skipped, self._wasted, len(self._givers), self._damaged)

    def _missing(self) -> frozenset[int]:
        return frozenset(chunk_set.members(self._state.missing))

    async def _close(self) -> None:
        """Leave everybody. Nothing writes to the destination after this, and nothing here refers to it: the pull and
        its connections refer to each other until the garbage collector comes, and weights may not wait for that."""
        if self._timer is not None:
            self._timer.cancel()
        self._state.drop()
        for link in list(self._links.values()):
            link.leave()
        if self._tasks:
            await asyncio.wait(self._tasks)
        del self._target

    # Events.

    def _news(self, peers: Mapping[Peer, ChunkSet]) -> None:
        self._report("heard_of", peers)

    def _report(self, event: str, *arguments: object) -> None:
        """Tell the rules what happened, and do what they say."""
        if self._over.is_set():
            return
        now = time.monotonic()
        actions: list[Action] = getattr(self._state, event)(now, *arguments)
        for action in actions:
            self._act(action)
        self._plan(now)

    def _wake(self) -> None:
        self._timer = None
        self._report("tick")

    def _plan(self, now: float) -> None:
        """See whether this is the end, and when to look again."""
        patient = now < self._progress_at + self._patience
        if self._state.outcome is not Outcome.RUNNING or not patient:
            self._over.set()
            return
        if self._peers.final and self._state.hopeless(now):
            self._over.set()
            return
        wake = min(self._state.next_wake(now) or float("inf"), self._progress_at + self._patience)
        if self._timer is not None:
            if self._wake_at <= wake:
                return  # a look too early does no harm, and planning anew after every word costs more
            self._timer.cancel()
        self._wake_at = wake
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wake - now) + 0.001, self._wake)

    # Actions.

    def _act(self, action: Action) -> None:
        match action:
            case Connect(peer):
                self._connect(peer)
            case Leave(name, why):
                self._leave(name, why)
            case Ask(name, attempt, candidates, last_resort, ready):
                flags = (Flag.LAST_RESORT if last_resort else Flag.NONE) | (Flag.READY if ready else Flag.NONE)
                self._say(name, Kind.ASK, attempt, flags=flags, candidates=candidates, have=self._bitmap())
            case Accept(name, attempt, accepted):
                offer = self._offered.pop((name, attempt))
                if accepted:
                    self._receive(name, offer)
                self._say(name, Kind.ACCEPT if accepted else Kind.DECLINE, attempt)
            case Cancel(name, attempt):
                self._say(name, Kind.CANCEL, attempt)

    def _connect(self, peer: Peer) -> None:
        try:
            address = Address.parse(peer.name)
        except ValueError:
            log.warning("%r is no address to pull from", peer.name)
            asyncio.get_running_loop().call_soon(self._report, "connect_failed", peer.name)
            return
        me = (self._me,) if self._me.name else ()
        hello = Message(Kind.HELLO, self._version, have=self._bitmap(), peers=me)
        link = Link(address, hello, lambda message: self._hear(peer.name, message), lambda why: ended(why))

        def ended(why: Exception | None) -> None:
            if self._links.get(peer.name) is link:
                del self._links[peer.name]
                self._problem(peer.name, why)
                self._report("lost", peer.name)

        self._links[peer.name] = link
        self._tasks.add(link.task)
        link.task.add_done_callback(self._tasks.discard)

    def _problem(self, name: str, why: object) -> None:
        log.info("left %s: %s", name, why)
        self._problems[name] = str(why)

    def _leave(self, name: str, why: Why) -> None:
        link = self._links.pop(name, None)
        if link is None:
            return
        if why is not Why.USELESS:
            self._problem(name, why.value)
        if why is Why.STALLED:
            link.abort()
        link.leave()

    def _say(self, name: str, kind: Kind, attempt: int, **fields: object) -> None:
        link = self._links.get(name)
        if link is not None:
            link.say(Message(kind, self._version, attempt, **fields))  # type: ignore[arg-type]

    def _bitmap(self) -> bytes:
        return chunk_set.to_bytes(self._state.have, len(self._manifest.chunks))

    # What sources say.

    def _hear(self, name: str, message: Message) -> None:
        have = chunk_set.from_bytes(message.have, len(self._manifest.chunks))
        match message.kind:
            case Kind.HAVE:
                self._report("told", name, have)
                if message.peers:
                    self._report("heard_of", message.peers)
            case Kind.CHUNK:
                self._offered[name, message.attempt] = message
                if Flag.READY in message.flags:
                    self._receive(name, self._offered.pop((name, message.attempt)))
                self._report("answered", name, message.attempt, message.chunk)
            case Kind.LACKING:
                self._report("lacking", name, message.attempt, have)
            case Kind.BUSY | Kind.RELIEVED | Kind.CANCELLED:
                self._report("refused", name, message.attempt)
            case Kind.GONE:
                self._report("gone", name)
            case Kind.FREE:
                self._report("slot_free", name)
            case _:
                log.warning("%s says %s", name, message.kind.name)

    def _receive(self, name: str, offer: Message) -> None:
        """Have a chunk arrive in its place, unless that is taken: then beside it."""
        link, chunk = self._links[name], self._manifest.chunks[offer.chunk]
        taken = offer.chunk in self._writers or offer.chunk in self._placing
        free = not taken and self._state.missing >> offer.chunk & 1
        size = chunk.size_bytes
        place = self._target.piece(chunk.offset, size) if free else self._target.beside(size)
        task = link.receive(place, offer.data_tag, lambda: self._verify(name, offer, place, in_place=bool(free)))
        self._tasks.add(task)
        if free:
            self._writers[offer.chunk] = (link, task)
        task.add_done_callback(lambda done: self._received(done, offer.chunk))

    def _received(self, task: asyncio.Task[None], chunk: int) -> None:
        self._tasks.discard(task)
        if self._writers.get(chunk, (None, None))[1] is task:
            del self._writers[chunk]
        if not task.cancelled() and isinstance(error := task.exception(), BufferLost):
            self._lost = error
            self._over.set()

    async def _verify(self, name: str, offer: Message, place: Any, *, in_place: bool) -> None:
        chunk = self._manifest.chunks[offer.chunk]
        if await self._target.digest(place) != chunk.digest:
            await self._target.clear(place)
            self._wasted += chunk.size_bytes
            self._damaged += 1
            log.warning("chunk %d from %s arrived damaged", offer.chunk, name)
            self._problems[name] = f"chunk {offer.chunk} arrived damaged"
            self._report("damaged", name, offer.attempt)
            return
        if not in_place:
            await self._put(offer.chunk, place)
        if self._state.missing >> offer.chunk & 1:
            self._progress_at = time.monotonic()
            self._givers.add(name)
        else:
            self._wasted += chunk.size_bytes
        self._report("verified", name, offer.attempt, offer.chunk)
        if self._source is not None:
            self._source.gained(self._manifest.root, 1 << offer.chunk)

    async def _put(self, index: int, data: Any) -> None:
        """Copy a verified chunk to its place. Whoever is still writing there is cut off first."""
        if index in self._writers:
            link, writer = self._writers[index]
            link.abort()
            await asyncio.wait({writer})
        if self._state.missing >> index & 1:
            self._placing.add(index)
            try:
                await self._target.put(self._manifest.chunks[index].offset, data)
            finally:
                self._placing.discard(index)


async def fetch_manifest(
    source: Address, *, epoch: int, step: int, shard: int, root: str, seconds: float = 10
) -> Manifest:
    """The manifest with this root digest, from a source that holds it.

    Raises:
        TransportError: the source does not give it.
        BadManifest: it gives something else.
    """
    version = Version(epoch, step, shard, root)
    found: asyncio.Future[Manifest] = asyncio.get_running_loop().create_future()

    def hear(message: Message) -> None:
        if found.done():
            return
        if message.kind is not Kind.MANIFEST:
            _fail(found, TransportError(f"the source says {message.kind.name}"))
            return
        try:
            found.set_result(Manifest.from_json(message.text, root))
        except BadManifest as error:
            _fail(found, error)

    link = Link(source, Message(Kind.MANIFEST, version), hear, lambda why: _fail(found, why))
    try:
        return await asyncio.wait_for(found, seconds)
    except TimeoutError as error:
        raise TransportError(f"{source}: no manifest within {seconds:g} s") from error
    finally:
        link.leave()
        await asyncio.wait({link.task})


def _fail(future: asyncio.Future[Manifest], why: Exception | None) -> None:
    if not future.done():
        future.set_exception(why or TransportError("the source closed the connection"))
