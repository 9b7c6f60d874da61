"""What the nodes of a simulation share: time, links, and how long a message takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weightsync.simulation.network import Clock, Links, Transfer
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.uploads import Send

if TYPE_CHECKING:
    from weightsync.simulation.node import Node


@dataclass(frozen=True)
class Weights:
    """A version: what its chunks must contain."""

    root: str
    digests: tuple[str, ...]
    chunk_bytes: int


@dataclass(eq=False)
class Channel:
    """A connection: who pulls what from whom. Messages on a closed one are lost."""

    number: int
    puller: Node
    source: Node
    root: str
    closed: bool = False
    last_news: float = -1.0
    news_due: bool = False
    offered: dict[int, Send] = field(default_factory=dict)
    """Chunks that wait for the puller to accept them."""
    transfers: dict[int, Transfer] = field(default_factory=dict)


@dataclass(eq=False)
class Net:
    """The network that all nodes are on."""

    clock: Clock
    links: Links
    latency_seconds: float
    detect_seconds: float
    """After which a broken connection is noticed."""
    news_seconds: float
    """Least time between two messages about new chunks on a connection."""
    config: SwarmConfig
    nodes: dict[str, Node] = field(default_factory=dict)
    channels: int = 0
    messages: int = 0

    def send(self, target: Node, call: Callable[..., None], *arguments: Any) -> None:
        """A message: `call` happens at the target after the latency, if it is alive then."""
        self.messages += 1
        self.clock.after(self.latency_seconds, target.receive, call, arguments)

    def channel(self, puller: Node, source: Node, root: str) -> Channel:
        self.channels += 1
        return Channel(self.channels, puller, source, root)
