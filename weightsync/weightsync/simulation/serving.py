"""The serving half of a simulated replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightsync.simulation.net import Channel, Weights
from weightsync.swarm.chunk_set import ChunkSet
from weightsync.swarm.leases import Ticket
from weightsync.swarm.offering import Offering
from weightsync.swarm.pull_state import Ask
from weightsync.swarm.uploads import Answer, Refusal, Send, Uploads
from weightsync.swarm.view import SwarmView

if TYPE_CHECKING:
    from weightsync.simulation.node import Node


class Serving:
    """Answers pullers as the rules of `Uploads` say."""

    def __init__(self, node: Node) -> None:
        self._node, self._net = node, node.net
        self.uploads = Uploads(node.net.config)
        self.offers = self.uploads.offers
        self.corrupt = False
        """Whether what it sends is damaged."""
        self.most_at_once = 0
        """Transfers: never more than it has slots."""
        self._expiry: float | None = None
        self._channels: dict[int, Channel] = {}
        self._turned_away: dict[int, Channel] = {}

    def offer(self, weights: Weights, view: SwarmView, have: ChunkSet, *, publisher: bool) -> None:
        """Serve this version from now on, and no other: a simulated replica has memory for one."""
        config, rng = self._net.config, self._node.rng
        self.offers.clear()
        self.offers[weights.root] = Offering(
            view, rng, chunk_bytes=weights.chunk_bytes, publisher=publisher, have=have, config=config
        )

    def channels(self) -> list[Channel]:
        return list(self._channels.values())

    # What pullers say.

    def greeted(self, channel: Channel) -> None:
        self._channels[channel.number] = channel
        self._tell(channel, "connected")
        if channel.root in self.offers:
            self._node.pulled_by(channel.puller.peer)

    def asked(self, channel: Channel, ask: Ask, have: ChunkSet) -> None:
        if channel.closed:
            return
        now = self._net.clock.now
        if offer := self.offers.get(channel.root):
            offer.view.heard(now, channel.puller.peer, have)
        ticket = _ticket(channel, ask.attempt)
        answers = self.uploads.ask(
            now, ticket, channel.root, ask.candidates, last_resort=ask.last_resort, ready=ask.ready
        )
        self._answer(answers)
        self._plan_expiry()

    def accepted(self, channel: Channel, attempt: int, accepted: bool) -> None:
        send = channel.offered.pop(attempt, None)
        if channel.closed or send is None:
            return
        if accepted and self.uploads.accepted(self._net.clock.now, send.ticket):
            self._transfer(channel, send)
            self._plan_expiry()
        elif not accepted:
            self._answer(self.uploads.sent(self._net.clock.now, send.ticket))

    def cancelled(self, channel: Channel, attempt: int) -> None:
        if not channel.closed:
            self._answer(self.uploads.cancel(self._net.clock.now, _ticket(channel, attempt)))

    def left(self, channel: Channel) -> None:
        """A puller has gone, or the connection to it."""
        if self._channels.pop(channel.number, None) is not None:
            self._answer(self.uploads.gone(self._net.clock.now, channel.number))

    # What is said to them.

    def gained(self, root: str, chunk: int) -> None:
        """There is one chunk more to give: tell those who are connected and lack it, not too often."""
        offer = self.offers.get(root)
        if offer is None:
            return
        offer.have |= 1 << chunk
        for channel in self._channels.values():
            known = offer.view.have(channel.puller.peer.name) >> chunk & 1
            if not channel.news_due and channel.root == root and not known:
                channel.news_due = True
                due = channel.last_news + self._net.news_seconds
                self._net.clock.at(due, self._node.receive, self._news, (channel,))

    def _news(self, channel: Channel) -> None:
        channel.news_due = False
        if not channel.closed:
            self._tell(channel, "have_heard")

    def _tell(self, channel: Channel, event: str) -> None:
        channel.last_news = self._net.clock.now
        if offer := self.offers.get(channel.root):
            self._say(channel, event, offer.have)
        else:
            self._say(channel, "gone")

    def _say(self, channel: Channel, event: str, *arguments: object) -> None:
        self._net.send(channel.puller, channel.puller.heard, channel, event, *arguments)

    def _answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            channel = self._channels.get(answer.ticket.connection)
            if channel is None or channel.closed:
                continue  # it is about to be heard of that the puller has left
            if isinstance(answer, Send):
                self._send(channel, answer)
            elif answer.reason is Refusal.REVOKED:
                self._revoke(channel)
            else:
                self._refuse(channel, answer.ticket.attempt, answer.reason)
        self._call_back()

    def _send(self, channel: Channel, send: Send) -> None:
        self._say(channel, "answered", send.ticket.attempt, send.chunk)
        if send.ready:
            self._transfer(channel, send)
        else:
            channel.offered[send.ticket.attempt] = send

    def _transfer(self, channel: Channel, send: Send) -> None:
        weights, attempt = self._node.weights, send.ticket.attempt
        if weights is None or weights.root != channel.root:
            self._say(channel, "gone")
            return
        content = "damaged" if self.corrupt else self._node.content[send.chunk]
        name, target = self._node.peer.name, channel.puller

        def through() -> None:
            channel.transfers.pop(attempt, None)
            self._net.send(target, target.arrived, channel, attempt, send.chunk, content)
            self._answer(self.uploads.sent(self._net.clock.now, send.ticket))

        links = self._net.links
        channel.transfers[attempt] = links.start(name, target.peer.name, weights.chunk_bytes, through)
        self.most_at_once = max(self.most_at_once, links.busy_up(name))

    def _refuse(self, channel: Channel, attempt: int, reason: Refusal) -> None:
        offer = self.offers.get(channel.root)
        if reason is Refusal.GONE or offer is None:
            self._say(channel, "gone")
        elif reason is Refusal.LACKING:
            self._say(channel, "lacking", attempt, offer.have)
        else:
            if reason is Refusal.BUSY:
                self._turned_away[channel.number] = channel
            self._say(channel, "refused", attempt)

    def _call_back(self) -> None:
        """A slot is free and nobody waits: tell some of those who were turned away, first come first."""
        if not self.uploads.leases.free:
            return
        for number in list(self._turned_away)[: self._net.config.called_back]:
            channel = self._turned_away.pop(number)
            if not channel.closed:
                self._say(channel, "slot_free")

    def _plan_expiry(self) -> None:
        due = self.uploads.leases.next_expiry()
        if due is not None and (self._expiry is None or due < self._expiry):
            self._expiry = due
            self._net.clock.at(due, self._node.receive, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self._answer(self.uploads.expire(self._net.clock.now))
        self._plan_expiry()

    def _revoke(self, channel: Channel) -> None:
        """A transfer held its slot for too long: close the connection."""
        channel.closed = True
        for transfer in channel.transfers.values():
            self._net.links.stop(transfer)
        del self._channels[channel.number]
        self._net.send(channel.puller, channel.puller.broken, channel)
        self._answer(self.uploads.gone(self._net.clock.now, channel.number))


def _ticket(channel: Channel, attempt: int) -> Ticket:
    return Ticket(channel.puller.peer.name, channel.number, attempt)
