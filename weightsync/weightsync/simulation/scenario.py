"""A whole swarm in virtual time: receivers, publishers, and what happens to them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from weightsync.simulation.net import Net, Weights
from weightsync.simulation.network import Clock, Links
from weightsync.simulation.node import Node
from weightsync.swarm.config import ONE_FLOW, SwarmConfig
from weightsync.swarm.directory import Announcement, Directory
from weightsync.swarm.peer import Peer

RATE = 1e9
"""Bytes a second on every link; only the ratio to the weights' size matters."""


@dataclass(frozen=True)
class Scenario:
    """What is simulated. Times in seconds."""

    receivers: int
    publishers: int = 1
    chunks: int = 64
    transfer_seconds: float = 4.0
    """S/B: how long the weights take over one link alone."""
    latency_seconds: float = 0.0002
    joins: tuple[float, ...] = ()
    """When further receivers begin."""
    deaths: tuple[float, ...] = ()
    """When one of the receivers dies, chosen by the seed."""
    directory_seconds: float = 0.25
    """How often a replica announces itself and hears of others."""
    neighbours: int = 32
    """Holders that the directory names at a time."""
    seed: int = 0
    config: SwarmConfig = ONE_FLOW
    """Simulated links are filled by one transfer."""


@dataclass(frozen=True)
class Finish:
    """One receiver's pull, in units of S/B."""

    name: str
    joined: float
    seconds: float


@dataclass(frozen=True)
class Result:
    finishes: tuple[Finish, ...]
    unfinished: tuple[str, ...]
    bytes_sent_ratio: float
    """Bytes that arrived, over those that were needed."""
    messages: int
    most_at_once: int
    """Transfers that one holder sent at a time."""

    def worst(self) -> float:
        """The last of the receivers that were there from the start; in S/B."""
        return max((each.seconds for each in self.finishes if not each.joined), default=float("nan"))

    def mean(self) -> float:
        first = [each.seconds for each in self.finishes if not each.joined]
        return sum(first) / len(first) if first else float("nan")

    def worst_joiner(self) -> float | None:
        return max((each.seconds for each in self.finishes if each.joined), default=None)


class Swarm:
    """The nodes of a scenario and their directory. Tests reach in to make things go wrong."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.rng = scenario, random.Random(scenario.seed)
        self.clock = Clock()
        size = scenario.transfer_seconds * RATE
        self.weights = Weights("v1", tuple(f"1/{n}" for n in range(scenario.chunks)), round(size / scenario.chunks))
        chunk_seconds = scenario.transfer_seconds / scenario.chunks
        self.net = Net(
            self.clock, Links(self.clock, RATE), scenario.latency_seconds, detect_seconds=0.01,
            news_seconds=chunk_seconds / 2, config=scenario.config,
        )  # fmt: skip
        self.directory: Directory | None = Directory(max(10.0, 4 * scenario.directory_seconds), self.rng)
        self.publishers = [self._node(f"publisher-{n}", publisher=True) for n in range(scenario.publishers)]
        self.receivers: list[Node] = []
        self._pending: list[Node] = []
        for node in self.publishers:
            node.publish(self.weights)
            self._visit(node)
        for _ in range(scenario.receivers):
            self.join()
        for node in self.receivers:
            self._hear(node)

    def nodes(self) -> list[Node]:
        return [*self.publishers, *self.receivers]

    def _node(self, name: str, *, publisher: bool = False) -> Node:
        return Node(self.net, Peer(name, f"host-of-{name}", publisher), random.Random(self.rng.random()))

    def join(self) -> Node:
        """One more receiver, from now on."""
        node = self._node(f"receiver-{len(self.receivers)}")
        self.receivers.append(node)
        self._pending.append(node)
        node.start(self.weights)
        self._visit(node)
        return node

    def update(self, weights: Weights) -> None:
        """A new version: live publishers have it at once, and every live receiver begins to pull it."""
        self.weights = weights
        for node in self.publishers:
            if node.alive:
                node.publish(weights)
                self._announce(node)
        for node in self.receivers:
            if node.alive:
                node.receive(node.start, (weights,))
                self._announce(node)
        for node in self.receivers:
            self._hear(node)

    def _visit(self, node: Node) -> None:
        """A replica's round with the directory, again and again."""
        if not node.alive:
            return
        if not node.stalled:
            self._announce(node)
            self._hear(node)
        pause = self.scenario.directory_seconds * self.rng.uniform(0.8, 1.2)
        self.clock.after(pause, self._visit, node)

    def _announce(self, node: Node) -> None:
        offer = node.serving.offers.get(self.weights.root)
        if self.directory is not None and offer is not None:
            count = len(self.weights.digests)
            self.directory.announce(self.clock.now, Announcement(node.peer, self.weights.root, count, offer.have))

    def _hear(self, node: Node) -> None:
        if self.directory is not None and node.pull is not None and node.weights is self.weights:
            limit = self.scenario.neighbours
            node.hear_of(self.directory.holders(self.clock.now, self.weights.root, node.peer.name, limit))

    def finished(self) -> bool:
        """Whether every live receiver is done."""
        while self._pending and (self._pending[-1].finished_at is not None or not self._pending[-1].alive):
            self._pending.pop()
        return not self._pending


def run(scenario: Scenario) -> Result:
    """Play a scenario to its end."""
    swarm = Swarm(scenario)
    for time in scenario.joins:
        swarm.clock.at(time, _join_one, swarm)
    for time in scenario.deaths:
        swarm.clock.at(time, _kill_one, swarm)
    last = max([0.0, *scenario.joins, *scenario.deaths])
    swarm.clock.run(last)
    swarm.clock.run(100 * scenario.transfer_seconds, swarm.finished)
    return _result(swarm)


def repeat(scenario: Scenario, times: int) -> list[Result]:
    """The same with other seeds."""
    return [run(replace(scenario, seed=scenario.seed + n)) for n in range(times)]


def _join_one(swarm: Swarm) -> None:
    swarm.join()


def _kill_one(swarm: Swarm) -> None:
    alive = [node for node in swarm.receivers if node.alive]
    if alive:
        swarm.rng.choice(alive).die()


def _result(swarm: Swarm) -> Result:
    unit = swarm.scenario.transfer_seconds
    live = [node for node in swarm.receivers if node.alive]
    finishes = tuple(
        Finish(node.peer.name, node.started_at / unit, (node.finished_at - node.started_at) / unit)
        for node in live
        if node.finished_at is not None
    )
    needed = len(finishes) * swarm.weights.chunk_bytes * len(swarm.weights.digests)
    got = sum(node.bytes_in for node in live if node.finished_at is not None)
    return Result(
        finishes,
        tuple(node.peer.name for node in live if node.finished_at is None),
        got / needed if needed else 0.0,
        swarm.net.messages,
        max(node.serving.most_at_once for node in swarm.nodes()),
    )
