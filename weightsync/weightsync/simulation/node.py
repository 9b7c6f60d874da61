"""One replica in virtual time: carries out what the swarm's rules say, over simulated links."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from weightsync.simulation.net import Channel, Net, Weights
from weightsync.simulation.serving import Serving
from weightsync.swarm.chunk_set import ChunkSet, full, of
from weightsync.swarm.peer import Peer
from weightsync.swarm.pull_state import Accept, Action, Ask, Cancel, Connect, Leave, Outcome, PullState, carried_over
from weightsync.swarm.strikes import Strikes
from weightsync.swarm.view import SwarmView


class Node:
    """A replica: pulls a version, and serves what it has of it."""

    def __init__(self, net: Net, peer: Peer, rng: random.Random) -> None:
        self.net, self.peer, self.rng = net, peer, rng
        self.alive, self.stalled = True, False
        self.strikes = Strikes(net.config.strikes)
        self.weights: Weights | None = None
        self.pull: PullState | None = None
        self.content: dict[int, str] = {}
        """What is in memory: of a complete version all, of a pull what was verified."""
        self.finished_at: float | None = None
        self.started_at = net.clock.now
        self.bytes_in = 0
        self.serving = Serving(self)
        self._out: dict[str, Channel] = {}
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._wake_at: float | None = None
        net.nodes[peer.name] = self

    # Life.

    def receive(self, call: Callable[..., None], arguments: tuple[Any, ...] = ()) -> None:
        """A message or a timer. A dead node hears nothing, a stalled one when it goes on."""
        if not self.alive:
            return
        if self.stalled:
            self._inbox.append((call, arguments))
        else:
            call(*arguments)

    def die(self) -> None:
        """Gone, with all connections; the others notice a little later."""
        self.alive = False
        for transfer in self.net.links.of(self.peer.name):
            self.net.links.stop(transfer)
        for channel in self._out.values():
            self._break(channel, channel.source, channel.source.serving.left)
        for channel in self.serving.channels():
            self._break(channel, channel.puller, channel.puller.broken)

    def _break(self, channel: Channel, other: Node, notice: Callable[[Channel], None]) -> None:
        channel.closed = True
        self.net.clock.after(self.net.detect_seconds, other.receive, notice, (channel,))

    def stall(self, *, stalled: bool) -> None:
        """Stop without dying, or go on."""
        self.stalled = stalled
        self.net.links.freeze(self.peer.name, frozen=stalled)
        if not stalled:
            inbox, self._inbox = self._inbox, []
            for call, arguments in inbox:
                self.receive(call, arguments)
            self.wake()

    # Versions.

    def publish(self, weights: Weights) -> None:
        """Hold all of a version."""
        self._leave_all()
        self.weights, self.pull, self.content = weights, None, dict(enumerate(weights.digests))
        view = SwarmView(len(weights.digests))
        self.serving.offer(weights, view, full(len(weights.digests)), publisher=self.peer.publisher)

    def start(self, weights: Weights) -> None:
        """Pull a version; what is here of an older one stays where it is the same."""
        before, content, count = self.weights, self.content, len(weights.digests)
        kept = carried_over(before.digests, of(content), weights.digests) if before is not None else {}
        self._leave_all()
        self.weights, self.content = weights, {new: content[old] for new, old in kept.items()}
        view = SwarmView(count)
        self.pull = PullState(
            [weights.chunk_bytes] * count, view, self.peer, self.rng,
            held=of(kept), strikes=self.strikes, config=self.net.config,
        )  # fmt: skip
        self.finished_at = None
        self.serving.offer(weights, view, self.pull.have, publisher=False)
        self._note_end()

    def drop(self) -> None:
        """The version is void, and so is what is here of it."""
        if self.pull is not None:
            self.pull.drop()
        self._leave_all()
        self.weights, self.pull, self.content = None, None, {}
        self.serving.offers.clear()

    def hear_of(self, peers: Mapping[Peer, ChunkSet]) -> None:
        """News from the directory."""
        self._report(self.pull, "heard_of", peers)

    def pulled_by(self, peer: Peer) -> None:
        self._report(self.pull, "pulled_by", peer)

    @property
    def exact(self) -> bool:
        """Whether everything is here, as it was published."""
        return self.weights is not None and self.content == dict(enumerate(self.weights.digests))

    # Pulling.

    def _report(self, pull: PullState | None, event: str, *arguments: object) -> None:
        """Report an event to the pull it belongs to, if that is still the one."""
        if pull is None or pull is not self.pull or pull.outcome is not Outcome.RUNNING:
            return
        for action in getattr(pull, event)(self.net.clock.now, *arguments):
            self._act(action)
        self._plan_wake(pull)
        self._note_end()

    def heard(self, channel: Channel, event: str, *arguments: object) -> None:
        """A source says something."""
        if not channel.closed:
            self._report(self.pull, event, channel.source.peer.name, *arguments)

    def _act(self, action: Action) -> None:
        if isinstance(action, Connect):
            self._connect(action.peer)
        elif isinstance(action, Leave):
            if action.source in self._out:
                self._close(self._out[action.source])
        else:
            channel = self._out[action.source]
            serving = channel.source.serving
            match action:
                case Ask():
                    self.net.send(channel.source, serving.asked, channel, action, of(self.content))
                case Accept(_, attempt, accepted):
                    self.net.send(channel.source, serving.accepted, channel, attempt, accepted)
                case Cancel(_, attempt):
                    self.net.send(channel.source, serving.cancelled, channel, attempt)

    def _connect(self, peer: Peer) -> None:
        other = self.net.nodes.get(peer.name)
        if other is None or not other.alive:
            failed = (self.pull, "connect_failed", peer.name)
            self.net.clock.after(self.net.detect_seconds, self.receive, self._report, failed)
            return
        assert self.weights is not None
        channel = self._out[peer.name] = self.net.channel(self, other, self.weights.root)
        self.net.send(other, other.serving.greeted, channel)

    def arrived(self, channel: Channel, attempt: int, chunk: int, content: str) -> None:
        """A chunk's bytes are here; now they are verified."""
        if channel.closed or self.weights is None:
            return
        self.bytes_in += self.weights.chunk_bytes
        if content != self.weights.digests[chunk]:
            self.heard(channel, "damaged", attempt)
            return
        new = chunk not in self.content
        self.content[chunk] = content
        self.heard(channel, "verified", attempt, chunk)
        if new:
            self.serving.gained(self.weights.root, chunk)

    def _note_end(self) -> None:
        if self.pull is not None and self.pull.outcome is Outcome.DONE and self.finished_at is None:
            self.finished_at = self.net.clock.now
            self._leave_all()

    def _plan_wake(self, pull: PullState) -> None:
        wake = pull.next_wake(self.net.clock.now)
        if wake is None or (self._wake_at is not None and self._wake_at <= wake):
            return
        self._wake_at = wake
        self.net.clock.at(wake, self._timer, wake)

    def _timer(self, planned: float) -> None:
        if self._wake_at == planned:
            self._wake_at = None
            self.receive(self.wake)

    def wake(self) -> None:
        self._report(self.pull, "tick")

    def _leave_all(self) -> None:
        for channel in list(self._out.values()):
            self._close(channel)

    def _close(self, channel: Channel) -> None:
        """Leave a source: it learns of it, and what was on its way is lost."""
        channel.closed = True
        del self._out[channel.source.peer.name]
        for transfer in channel.transfers.values():
            self.net.links.stop(transfer)
        self.net.send(channel.source, channel.source.serving.left, channel)

    def broken(self, channel: Channel) -> None:
        """A connection to a source failed."""
        name = channel.source.peer.name
        if self._out.get(name) is channel:
            del self._out[name]
            self._report(self.pull, "lost", name)
