"""Virtual time and limited links: every node has one full-duplex link, shared evenly by the transfers on it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Clock:
    """A queue of events. Nothing takes time but what is scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (max(time, self.now), next(self._numbers), call, arguments))

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + seconds, call, *arguments)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Play events until a time, or until `done`."""
        while self._queue and not done():
            if self._queue[0][0] > until:
                break
            self.now, _, call, arguments = heapq.heappop(self._queue)
            call(*arguments)


@dataclass(eq=False, slots=True)
class Transfer:
    """Bytes on their way from one node to another."""

    source: str
    target: str
    remaining: float
    arrived: Callable[[], None]
    rate: float = 0.0
    since: float = 0.0
    plan: int = 0
    """Number of the last plan; older ones are void."""
    over: bool = False


@dataclass
class Links:
    """All links.

    Args:
        bytes_per_second: each way, of every node that has no other rate in `rates`.
    """

    clock: Clock
    bytes_per_second: float
    rates: dict[str, float] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    """Nodes that neither send nor receive for now."""
    _up: dict[str, list[Transfer]] = field(default_factory=dict)
    _down: dict[str, list[Transfer]] = field(default_factory=dict)

    def start(self, source: str, target: str, size_bytes: int, arrived: Callable[[], None]) -> Transfer:
        transfer = Transfer(source, target, size_bytes, arrived, since=self.clock.now)
        self._up.setdefault(source, []).append(transfer)
        self._down.setdefault(target, []).append(transfer)
        self._share(source, target)
        return transfer

    def stop(self, transfer: Transfer) -> None:
        """Cut a transfer off, or take note of its end."""
        if transfer.over:
            return
        transfer.over = True
        self._up[transfer.source].remove(transfer)
        self._down[transfer.target].remove(transfer)
        self._share(transfer.source, transfer.target)

    def freeze(self, node: str, *, frozen: bool) -> None:
        (self.frozen.add if frozen else self.frozen.discard)(node)
        self._share(node, node)

    def busy_up(self, node: str) -> int:
        return len(self._up.get(node, ()))

    def of(self, node: str) -> list[Transfer]:
        """All transfers from or to a node."""
        return [*self._up.get(node, ()), *self._down.get(node, ())]

    def _share(self, source: str, target: str) -> None:
        for transfer in [*self._up.get(source, ()), *self._down.get(target, ())]:
            self._replan(transfer)
        if source == target:
            for transfer in [*self._up.get(target, ()), *self._down.get(source, ())]:
                self._replan(transfer)

    def _replan(self, transfer: Transfer) -> None:
        now = self.clock.now
        rate = self._rate(transfer)
        if rate == transfer.rate and transfer.plan:
            return
        transfer.remaining = max(0.0, transfer.remaining - transfer.rate * (now - transfer.since))
        transfer.since, transfer.rate = now, rate
        transfer.plan += 1
        if rate:
            self.clock.at(now + transfer.remaining / rate, self._finish, transfer, transfer.plan)

    def _rate(self, transfer: Transfer) -> float:
        if transfer.source in self.frozen or transfer.target in self.frozen:
            return 0.0
        up = self._limit(transfer.source) / len(self._up[transfer.source])
        down = self._limit(transfer.target) / len(self._down[transfer.target])
        return min(up, down)

    def _limit(self, node: str) -> float:
        return self.rates.get(node, self.bytes_per_second)

    def _finish(self, transfer: Transfer, plan: int) -> None:
        if transfer.over or transfer.plan != plan:
            return
        self.stop(transfer)
        transfer.arrived()
