"""One puller at a source: what it says, and what it is told."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any

from weightsync.dialogue import Dialogue
from weightsync.swarm import chunk_set
from weightsync.swarm.leases import Ticket
from weightsync.swarm.peer import Peer
from weightsync.swarm.uploads import Answer, Refusal, Send
from weightsync.transport import Connection, TransportError
from weightsync.wire import MESSAGE_BYTES, Flag, Kind, Message, Version, Welcome, data_tag

if TYPE_CHECKING:
    from weightsync.source import Held, Source

log = logging.getLogger(__name__)

NAMED_PEERS = 16
"""Others that a puller is told of at a time, in case it has no directory."""
BYTES_SECONDS = 60.0
"""For a chunk to leave; its lease is over long before."""
REPLIES = {Refusal.BUSY: Kind.BUSY, Refusal.RELIEVED: Kind.RELIEVED, Refusal.CANCELLED: Kind.CANCELLED}


class Serving:
    """A connection from a puller.

    Args:
        number: of the connection, unique at this source.
    """

    def __init__(self, source: Source, number: int) -> None:
        self.number, self.token = number, secrets.token_bytes(16)
        self._source = source
        self.dialogue = Dialogue(self._dispatch, longest_bytes=MESSAGE_BYTES, made=self._welcome)
        self._puller: Peer | None = None
        """Who it is, if it serves as well and so has said it."""
        self._follows: Version | None = None
        """The version it hears news of."""
        self._last_attempt = 0
        self._versions: dict[int, Version] = {}
        self._offered: dict[int, Send] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._line: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        """UCX's connection, once the puller has opened it."""
        self._news: asyncio.TimerHandle | None = None
        self._last_news = 0.0
        self._named: set[str] = set()
        """Others that it has been told of."""

    @property
    def name(self) -> str:
        """Of the puller; a makeshift if it has none."""
        return self._puller.name if self._puller is not None else f"connection {self.number}"

    async def run(self) -> None:
        """Serve until the puller leaves or the connection fails."""
        try:
            await self.dialogue.wait()
        except TransportError as error:
            log.debug("%s: %s", self.name, error)
        finally:
            await self._end()

    async def _end(self) -> None:
        self.dialogue.abort()
        if self._news is not None:
            self._news.cancel()
        connection = self._line.result() if self._line.done() and not self._line.cancelled() else None
        self._line.cancel()
        if self._sending:
            if connection is not None:
                connection.abort()
            await asyncio.gather(*self._sending, return_exceptions=True)
        if connection is not None:
            await connection.close()

    def attach(self, connection: Connection) -> None:
        """Chunks travel over this. A second one, or one that comes too late, is not wanted."""
        if self._line.done():
            connection.abort()
        else:
            self._line.set_result(connection)

    def _welcome(self, dialogue: Dialogue) -> None:
        dialogue.say(Welcome(self._source.bytes_port, self.token).pack())
        self._source.met(self)

    # What the puller says.

    def _dispatch(self, frame: bytes) -> None:
        self._hear(Message.unpack(frame))

    def _hear(self, message: Message) -> None:
        match message.kind:
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
                self._cancelled(message.attempt)
            case _:
                raise TransportError(f"a puller says {message.kind.name}")

    def _greeted(self, message: Message) -> None:
        self._follows = message.version
        held = self._source.find(message.version)
        if message.peers and self._puller is None:
            self._puller = message.peers[0]
        self._tell_have()
        if held is not None and self._puller is not None:
            self._heard_have(held, message.have)
            if held.pulled_by is not None:
                held.pulled_by(self._puller)

    def _heard_have(self, held: Held, have: bytes) -> None:
        if self._puller is not None:  # nobody can pull from one without a name, so it holds no copies that count
            chunks = chunk_set.from_bytes(have, len(held.manifest.chunks))
            held.offer.view.heard(time.monotonic(), self._puller, chunks)

    def _asked(self, message: Message) -> None:
        held = self._source.find(message.version)
        if held is None:
            self._reply(Kind.GONE, message.version, message.attempt)
            return
        if message.attempt <= self._last_attempt:
            raise TransportError(f"request {message.attempt} comes after {self._last_attempt}")
        self._last_attempt = message.attempt
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
            del self._versions[attempt]
            self._source.carry_out(self._source.uploads.sent(time.monotonic(), send.ticket))

    def _cancelled(self, attempt: int) -> None:
        uploads, ticket = self._source.uploads, self._ticket(attempt)
        self._source.carry_out(uploads.cancel(time.monotonic(), ticket))
        if not uploads.knows(ticket):
            self._versions.pop(attempt, None)

    def _manifest(self, message: Message) -> None:
        held = self._source.find(message.version)
        if held is None:
            self._reply(Kind.GONE, message.version, message.attempt)
            return
        self._say(Message(Kind.MANIFEST, message.version, message.attempt, text=held.text))

    # What it is told.

    def answer(self, answer: Answer) -> None:
        """What becomes of one of its requests."""
        attempt = answer.ticket.attempt
        if isinstance(answer, Send):
            self._offer(attempt, answer)
        elif answer.reason is Refusal.REVOKED:
            self.dialogue.fail(TransportError("it did not take a chunk within its lease"))
            log.warning("%s did not take a chunk within its lease", self.name)
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
        known = self._named | {self.name}
        others = [peer for peer in held.offer.view.peers() if peer.name not in known][:NAMED_PEERS]
        self._named.update(peer.name for peer in others)
        self._say(Message(Kind.HAVE, self._follows, have=_bitmap(held), peers=tuple(others)))

    def _offer(self, attempt: int, send: Send) -> None:
        version = self._versions[attempt]
        held = self._source.find(version)
        assert held is not None, "an offer ends with its version"
        flags = Flag.READY if send.ready else Flag.NONE
        self._say(Message(Kind.CHUNK, version, attempt, send.chunk, flags))
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
        data = held.data.piece(chunk.offset, chunk.size_bytes)
        task = asyncio.get_running_loop().create_task(self._send_chunk(send, data), name="weight-upload")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_chunk(self, send: Send, data: Any) -> None:
        try:
            connection = await asyncio.wait_for(asyncio.shield(self._line), BYTES_SECONDS)
            await connection.send(data, data_tag(send.ticket.attempt), BYTES_SECONDS)
        except (TransportError, TimeoutError) as error:
            self.dialogue.fail(error)
            return
        self._source.bytes_sent += len(data)
        self._source.carry_out(self._source.uploads.sent(time.monotonic(), send.ticket))

    def _refuse(self, attempt: int, reason: Refusal) -> None:
        version = self._versions.pop(attempt)
        held = self._source.find(version)
        if held is None or reason is Refusal.GONE:
            self._reply(Kind.GONE, version, attempt)
        elif reason is Refusal.LACKING:
            self._say(Message(Kind.LACKING, version, attempt, have=_bitmap(held)))
        else:
            if reason is Refusal.BUSY:
                self._source.turned_away(self)
            self._reply(REPLIES[reason], version, attempt)

    def _reply(self, kind: Kind, version: Version, attempt: int = 0) -> None:
        self._say(Message(kind, version, attempt))

    def _say(self, message: Message) -> None:
        self.dialogue.say(message.pack())

    def _ticket(self, attempt: int) -> Ticket:
        return Ticket(self.name, self.number, attempt)


def _bitmap(held: Held) -> bytes:
    return chunk_set.to_bytes(held.offer.have, len(held.manifest.chunks))
