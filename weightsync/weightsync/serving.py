"""One puller at a source: what it says, and what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from weightsync.dialogue import Dialogue
from weightsync.swarm import chunk_set
from weightsync.swarm.leases import Ticket
from weightsync.swarm.peer import Peer
from weightsync.swarm.uploads import Answer, Refusal, Send
from weightsync.transport import Connection, TransportError
from weightsync.wire import REPLY_TAG, REQUEST_TAG, Flag, Kind, Message, Version

if TYPE_CHECKING:
    from weightsync.source import Held, Source

log = logging.getLogger(__name__)

NAMED_PEERS = 16
"""Others that a puller is told of, in case it has no directory."""
BYTES_SECONDS = 60.0
"""For a chunk to leave; its lease is over long before."""
FAREWELL_SECONDS = 2.0
"""For a puller that has said BYE to close the connection."""
REPLIES = {Refusal.BUSY: Kind.BUSY, Refusal.RELIEVED: Kind.RELIEVED, Refusal.CANCELLED: Kind.CANCELLED}


class Serving:
    """A connection from a puller.

    Args:
        number: of the connection, unique at this source.
    """

    def __init__(self, source: Source, connection: Connection, number: int) -> None:
        self.number = number
        self._source, self._connection = source, connection
        self._dialogue = Dialogue(connection, REPLY_TAG, REQUEST_TAG)
        self._puller = Peer(f"connection {number}")
        self._follows: Version | None = None
        """The version it hears news of."""
        self._versions: dict[int, Version] = {}
        self._offered: dict[int, Send] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._news: asyncio.TimerHandle | None = None
        self._last_news = 0.0

    @property
    def name(self) -> str:
        """Of the puller, once it has said it."""
        return self._puller.name

    async def run(self) -> None:
        """Serve until the puller leaves or the connection fails."""
        try:
            with contextlib.suppress(TransportError):
                await self._dialogue.run(self._hear)
                # The last word is lost if this end closes first.
                await self._connection.receive(np.empty(1, np.uint8), REQUEST_TAG, FAREWELL_SECONDS)
        finally:
            if self._news is not None:
                self._news.cancel()
            if self._sending:
                self._connection.abort()
                await asyncio.gather(*self._sending, return_exceptions=True)
            await self._connection.close()

    # What the puller says.

    def _hear(self, message: Message) -> bool:
        match message.kind:
            case Kind.BYE:
                self._dialogue.say(message)
                return False
            case Kind.HELLO:
                self._greeted(message)
            case Kind.MANIFEST:
                self._manifest(message)
            case Kind.ASK:
                self._asked(message)
            case Kind.ACCEPT:
                self._accepted(message.attempt)
            case Kind.DECLINE:
                self._declined(message.attempt)
            case Kind.CANCEL:
                self._source.carry_out(self._source.uploads.cancel(time.monotonic(), self._ticket(message.attempt)))
            case _:
                raise TransportError(f"a puller says {message.kind.name}")
        return True

    def _greeted(self, message: Message) -> None:
        self._follows = message.version
        held = self._source.find(message.version)
        if message.peers:
            self._puller = message.peers[0]
        self._tell_have()
        if held is not None and message.peers:
            self._heard_have(held, message.have)
            if held.pulled_by is not None:
                held.pulled_by(self._puller)

    def _heard_have(self, held: Held, have: bytes) -> None:
        chunks = chunk_set.from_bytes(have, len(held.manifest.chunks))
        held.offer.view.heard(time.monotonic(), self._puller, chunks)

    def _asked(self, message: Message) -> None:
        held = self._source.find(message.version)
        if held is None:
            self._reply(Kind.GONE, message.version, message.attempt)
            return
        self._heard_have(held, message.have)
        self._versions[message.attempt] = message.version
        answers = self._source.uploads.ask(
            time.monotonic(), self._ticket(message.attempt), message.version.root, message.candidates,
            last_resort=Flag.LAST_RESORT in message.flags, ready=Flag.READY in message.flags,
        )  # fmt: skip
        self._source.carry_out(answers)

    def _accepted(self, attempt: int) -> None:
        send = self._offered.pop(attempt, None)
        if send is not None and self._source.uploads.accepted(time.monotonic(), send.ticket):
            self._begin(send)
            self._source.carry_out([])

    def _declined(self, attempt: int) -> None:
        send = self._offered.pop(attempt, None)
        if send is not None:
            self._refuse(attempt, Refusal.CANCELLED)
            self._source.carry_out(self._source.uploads.sent(time.monotonic(), send.ticket))

    def _manifest(self, message: Message) -> None:
        held = self._source.find(message.version)
        if held is None:
            self._reply(Kind.GONE, message.version, message.attempt)
            return
        self._dialogue.say(Message(Kind.MANIFEST, message.version, message.attempt, size_bytes=len(held.text)))
        self._spawn(self._send_bytes(memoryview(held.text), message.data_tag))

    # What it is told.

    def answer(self, answer: Answer) -> None:
        """What becomes of one of its requests."""
        attempt = answer.ticket.attempt
        if isinstance(answer, Send):
            self._offer(attempt, answer)
        elif answer.reason is Refusal.REVOKED:
            log.warning("%s did not take a chunk within its lease", self._puller.name)
            self._connection.abort()
        else:
            self._offered.pop(attempt, None)
            self._refuse(attempt, answer.reason)

    def slot_free(self) -> None:
        if self._follows is not None:
            self._reply(Kind.FREE, self._follows)

    def news(self, root: str) -> None:
        """Something has changed in what there is of a version: say so, not too often."""
        if self._follows is None or self._follows.root != root or self._news is not None:
            return
        delay = max(0.0, self._last_news + self._source.news_seconds() - time.monotonic())
        self._news = asyncio.get_running_loop().call_later(delay, self._tell_have)

    def _tell_have(self) -> None:
        self._news, self._last_news = None, time.monotonic()
        assert self._follows is not None
        held = self._source.find(self._follows)
        if held is None:
            self._reply(Kind.GONE, self._follows)
            return
        others = [peer for peer in held.offer.view.peers() if peer.name != self._puller.name]
        self._dialogue.say(Message(Kind.HAVE, self._follows, have=_bitmap(held), peers=tuple(others[:NAMED_PEERS])))

    def _offer(self, attempt: int, send: Send) -> None:
        version = self._versions[attempt]
        held = self._source.find(version)
        assert held is not None, "an offer ends with its version"
        flags = Flag.READY if send.ready else Flag.NONE
        size = held.manifest.chunks[send.chunk].size_bytes
        self._dialogue.say(Message(Kind.CHUNK, version, attempt, send.chunk, size, flags))
        if send.ready:
            self._begin(send)
        else:
            self._offered[attempt] = send

    def _begin(self, send: Send) -> None:
        version = self._versions.pop(send.ticket.attempt)
        held = self._source.find(version)
        if held is None:  # dropped between offer and acceptance
            self._reply(Kind.GONE, version, send.ticket.attempt)
            self._source.carry_out(self._source.uploads.sent(time.monotonic(), send.ticket))
            return
        chunk = held.manifest.chunks[send.chunk]
        self._spawn(self._send_chunk(send, held.data[chunk.offset : chunk.offset + chunk.size_bytes]))

    async def _send_chunk(self, send: Send, data: memoryview) -> None:
        await self._send_bytes(data, REPLY_TAG + send.ticket.attempt)
        self._source.bytes_sent += len(data)
        self._source.carry_out(self._source.uploads.sent(time.monotonic(), send.ticket))

    async def _send_bytes(self, data: memoryview, tag: int) -> None:
        with contextlib.suppress(TransportError):  # the dialogue ends by it too
            await self._connection.send(np.frombuffer(data, np.uint8), tag, BYTES_SECONDS)

    def _refuse(self, attempt: int, reason: Refusal) -> None:
        version = self._versions.pop(attempt)
        held = self._source.find(version)
        if held is None or reason is Refusal.GONE:
            self._reply(Kind.GONE, version, attempt)
        elif reason is Refusal.LACKING:
            self._dialogue.say(Message(Kind.LACKING, version, attempt, have=_bitmap(held)))
        else:
            if reason is Refusal.BUSY:
                self._source.turned_away(self)
            self._reply(REPLIES[reason], version, attempt)

    def _reply(self, kind: Kind, version: Version, attempt: int = 0) -> None:
        self._dialogue.say(Message(kind, version, attempt))

    def _ticket(self, attempt: int) -> Ticket:
        return Ticket(self._puller.name, self.number, attempt)

    def _spawn(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task = asyncio.get_running_loop().create_task(work, name="weight-upload")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)


def _bitmap(held: Held) -> bytes:
    return chunk_set.to_bytes(held.offer.have, len(held.manifest.chunks))
