"""A holder of weights serves them: verified chunks, also of versions that it is still pulling itself.

Every request names epoch, step, shard and root; anything else than what is held is answered GONE. So a puller can never
mix versions, and a source never hands out bytes that it is about to replace: a version is served until it is dropped,
and a chunk on its way keeps its buffer alive. Whom to serve, when and with which chunk is decided by `swarm.uploads`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np

from weightsync import transport
from weightsync.dialogue import Dialogue
from weightsync.manifest import Buffer, Manifest
from weightsync.memory import Memory, memory_of
from weightsync.serving import Serving
from weightsync.swarm import chunk_set
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.offering import Offering
from weightsync.swarm.peer import Peer
from weightsync.swarm.uploads import Answer, Uploads
from weightsync.swarm.view import SwarmView
from weightsync.transport import CONNECT_SECONDS, Connection, TransportError
from weightsync.wire import TOKEN_BYTES, TOKEN_TAG, Version

log = logging.getLogger(__name__)

ANY_INTERFACE = "0.0.0.0"
KEPT_VERSIONS = 2
"""The newest version and the one before it, for pullers that are half-way through."""
NEWS_SECONDS = (0.005, 0.25)
"""Least and longest time between two messages about new chunks to one puller; between them half a transfer's time."""


@dataclass
class Held:
    """A version that is served, in full or in part."""

    manifest: Manifest
    text: bytes
    data: Memory
    offer: Offering
    pulled_by: Callable[[Peer], None] | None = None
    """Told of everybody who begins to pull it from here."""


class Source:
    """Serves the versions it is given.

    Args:
        config: its upload slots, above all.
    """

    def __init__(self, config: SwarmConfig | None = None) -> None:
        self.config = config or SwarmConfig()
        self.uploads = Uploads(self.config)
        self.held: dict[str, Held] = {}
        self.bytes_sent = 0
        self._rng = random.Random()
        self.bytes_port = 0
        """Where UCX listens."""
        self._listener: asyncio.Server | None = None
        self._bytes_listener: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pullers: dict[int, Serving] = {}
        self._connections = 0
        self._turned_away: dict[int, Serving] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_at = 0.0

    async def start(self, port: int = 0) -> int:
        """Listen on all interfaces: on this port for words, on the next one for bytes. The port.

        Args:
            port: 0 for any two that are free.

        Raises:
            OSError: something else listens there.
        """
        loop = asyncio.get_running_loop()
        ucxx = transport.start()

        async def admit(endpoint: Any) -> None:
            # UCXX may call from its own thread and loop; serving belongs to ours.
            loop.call_soon_threadsafe(self._own, self._admit(Connection(endpoint)))

        try:
            self._bytes_listener = ucxx.create_listener(admit, port=port + 1 if port else None)
        except Exception as error:  # UCXX raises many kinds, none of which names the port
            raise OSError(f"no listening for bytes on port {port + 1 if port else 'any'}: {error}") from error
        self.bytes_port = int(self._bytes_listener.port)
        self._listener = await loop.create_server(self._accept, ANY_INTERFACE, port)
        return int(self._listener.sockets[0].getsockname()[1])

    # What there is to serve.

    def hold(self, manifest: Manifest, data: Buffer | Memory, *, publisher: bool = False) -> None:
        """Serve a version. The bytes must be verified, and must not change until the version is dropped.

        Args:
            publisher: whether it comes from here. Then relays are to do the most of the work.
        """
        offer = self.begin(manifest, data, SwarmView(len(manifest.chunks)), publisher=publisher)
        self.gained(manifest.root, chunk_set.full(len(manifest.chunks)) & ~offer.have)

    def begin(
        self,
        manifest: Manifest,
        data: Buffer | Memory,
        view: SwarmView,
        *,
        publisher: bool = False,
        pulled_by: Callable[[Peer], None] | None = None,
    ) -> Offering:
        """Serve the chunks of a version that `gained` names, from now on."""
        memory = memory_of(data)
        if memory.size_bytes != manifest.size_bytes:
            raise ValueError(f"the manifest says {manifest.size_bytes} bytes, the buffer has {memory.size_bytes}")
        largest = max((chunk.size_bytes for chunk in manifest.chunks), default=0)
        offer = Offering(view, self._rng, chunk_bytes=largest, publisher=publisher, config=self.config)
        root = manifest.root
        self.held.pop(root, None)
        self.held[root] = Held(manifest, manifest.to_json(), memory, offer, pulled_by)
        self.uploads.offers[root] = offer
        while len(self.held) > KEPT_VERSIONS:
            self.drop(next(iter(self.held)))
        return offer

    def gained(self, root: str, chunks: chunk_set.ChunkSet) -> None:
        """These chunks of a version are here now, and verified."""
        held = self.held.get(root)
        if held is None:
            return
        held.offer.have |= chunks
        for puller in self._pullers.values():
            if chunks & ~held.offer.view.have(puller.name):
                puller.news(root)

    def verified(self, root: str) -> chunk_set.ChunkSet:
        """The chunks of a version that are here."""
        held = self.held.get(root)
        return held.offer.have if held is not None else 0

    def drop(self, root: str) -> None:
        """Serve this version no longer; whoever pulls it is told."""
        self.uploads.offers.pop(root, None)
        if self.held.pop(root, None) is not None:
            for puller in self._pullers.values():
                puller.news(root)

    def find(self, version: Version) -> Held | None:
        """What is held of exactly this version."""
        held = self.held.get(version.root)
        if held is None:
            return None
        manifest = held.manifest
        same = (manifest.epoch, manifest.step, manifest.shard) == (version.epoch, version.step, version.shard)
        return held if same else None

    def news_seconds(self) -> float:
        """Least time between two messages about new chunks to one puller."""
        least, longest = NEWS_SECONDS
        return min(longest, max(least, (self.uploads.leases.usual_seconds or 0.0) / 2))

    # Pullers.

    def _accept(self) -> Dialogue:
        self._connections += 1
        return Serving(self, self._connections).dialogue

    def met(self, puller: Serving) -> None:
        """A puller is there."""
        self._pullers[puller.number] = puller
        self._own(self._serve(puller))

    async def _admit(self, connection: Connection) -> None:
        """A puller connects by UCX: to whose dialogue it belongs is its first word."""
        token = np.empty(TOKEN_BYTES, np.uint8)
        try:
            await connection.receive(token, TOKEN_TAG, CONNECT_SECONDS)
        except TransportError as error:
            log.info("somebody connected and did not say who: %s", error)
            return
        said = token.tobytes()
        puller = next((each for each in self._pullers.values() if each.token == said), None)
        if puller is None:  # it has left meanwhile
            connection.abort()
        else:
            puller.attach(connection)

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="weight-source")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, puller: Serving) -> None:
        try:
            await puller.run()
        finally:
            self._pullers.pop(puller.number, None)
            self._turned_away.pop(puller.number, None)
            self.carry_out(self.uploads.gone(time.monotonic(), puller.number))

    def carry_out(self, answers: list[Answer]) -> None:
        """Give pullers their answers, and free slots to those who asked in vain."""
        for answer in answers:
            puller = self._pullers.get(answer.ticket.connection)
            if puller is not None:
                puller.answer(answer)
        if self.uploads.leases.free:
            for number in list(self._turned_away)[: self.config.called_back]:
                self._turned_away.pop(number).slot_free()
        self._plan_expiry()

    def turned_away(self, puller: Serving) -> None:
        """This one was told BUSY, and wants to know when a slot is free."""
        self._turned_away[puller.number] = puller

    def _plan_expiry(self) -> None:
        due = self.uploads.leases.next_expiry()
        if due is None or (self._expiry is not None and self._expiry_at <= due):
            return  # a look too early does no harm, and planning anew after every word costs more
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = due
        delay = max(0.0, due - time.monotonic())
        self._expiry = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self.carry_out(self.uploads.expire(time.monotonic()))

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        for listener in (self._listener, self._bytes_listener):
            if listener is not None:
                listener.close()
        self._listener = self._bytes_listener = None
        if self._expiry is not None:
            self._expiry.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
