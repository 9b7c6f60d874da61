"""One version to many machines, every NIC of the same rate: completion in units of S/B, the time of one copy.

Two cores are not to be the limit: at `RATE` sixteen processes need about half of what two cores have. A chunk must take
long beside a round trip through full queues, as it does at real rates.
"""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from network import Machine, machines
from processes import Process, processes
from table import Row

RATE = 8e6
SIZE = 256 << 20
CHUNK = 2 << 20
RECEIVERS = 15
RUNS = 5
SLACK_SECONDS = 0.5
"""What a source's death may cost beside its chunk in flight."""
UNIT_SECONDS = SIZE / RATE


class Net:
    """Machine 0 publishes; the others receive."""

    def __init__(self, hosts: Sequence[Machine], nodes: Sequence[Process]) -> None:
        self.hosts, self.nodes = hosts, nodes
        self.ports = [int(node.ask("listen")["port"]) for node in nodes]
        self.root: str = nodes[0].ask("hold", size=SIZE, chunk=CHUNK)["root"]
        for node in nodes[1:]:
            node.ask("prepare", size=SIZE)

    def address(self, number: int) -> str:
        return f"{self.hosts[number].address}:{self.ports[number]}"

    def tell_pull(self, number: int, sources: Sequence[int], *, serve: bool = False, swarm: bool = False) -> None:
        """Begin a pull, alone, or as one of a swarm that serves while it pulls."""
        self.nodes[number].tell(
            "pull", root=self.root, sources=[self.address(source) for source in sources], size=SIZE, serve=serve,
            me=self.address(number) if swarm else "",
        )  # fmt: skip

    def pulled(self, number: int) -> dict[str, Any]:
        """How a pull ended. It must have."""
        answer: dict[str, Any] = self.nodes[number].answer()
        if answer["error"]:
            raise SystemExit(f"machine {number}: {answer['error']}")
        return answer

    def check(self, number: int) -> bool:
        return bool(self.nodes[number].ask("check")["exact"])


def relay(net: Net) -> tuple[float, bool]:
    """The paper's: whole models, from one complete holder at a time, who serves one receiver at a time."""
    waiting = list(range(1, len(net.nodes)))
    free, began, lock = [0], time.monotonic(), threading.Condition()
    failures: list[BaseException] = []

    def hop(receiver: int, source: int) -> None:
        try:
            net.tell_pull(receiver, [source], serve=True)
            net.pulled(receiver)
        except BaseException as error:  # a thread's SystemExit ends nothing but the thread
            failures.append(error)
        with lock:
            free.extend((receiver, source))
            lock.notify()

    hops = []
    with lock:
        while waiting:
            lock.wait_for(lambda: free)
            if failures:
                break
            hops.append(threading.Thread(target=hop, args=(waiting.pop(0), free.pop(0))))
            hops[-1].start()
    for thread in hops:
        thread.join()
    if failures:
        raise failures[0]
    seconds = time.monotonic() - began
    return seconds, all(net.check(number) for number in range(1, len(net.nodes)))


def swarm(net: Net) -> tuple[float, bool]:
    """Everybody pulls from everybody, as soon as anybody has anything."""
    receivers = range(1, len(net.nodes))
    began = time.monotonic()
    for number in receivers:
        net.tell_pull(number, [0, *(other for other in receivers if other != number)], swarm=True)
    ended = max(net.pulled(number)["ended"] for number in receivers)
    return ended - began, all(net.check(number) for number in receivers)


def measure_swarm(env: Mapping[str, str], receivers: int = RECEIVERS, runs: int = RUNS) -> Iterator[Row]:
    times, exact = _repeat(swarm, env, receivers, runs)
    median = statistics.median(times)
    yield Row(
        f"{receivers} receivers, swarm", median, "S/B", limit=1, limit_is="one NIC", ratio=median, at_most=1.3,
        exact=exact, runs=times,
    )  # fmt: skip


def _repeat(
    spread: Callable[[Net], tuple[float, bool]], env: Mapping[str, str], receivers: int, runs: int
) -> tuple[list[float], bool]:
    """Times in S/B, and whether every receiver was exact every time."""
    times, exact = [], True
    for _ in range(runs):
        with machines(receivers + 1, RATE) as hosts, processes([host.prefix for host in hosts], env) as nodes:
            seconds, right = spread(Net(hosts, nodes))
            times.append(seconds / UNIT_SECONDS)
            exact &= right
    return times, exact


def measure_relay(env: Mapping[str, str], receivers: int = RECEIVERS, runs: int = RUNS) -> Iterator[Row]:
    times, exact = _repeat(relay, env, receivers, runs)
    yield Row(
        f"{receivers} receivers, whole-model relay", statistics.median(times), "S/B", note="for comparison",
        exact=exact, runs=times,
    )  # fmt: skip


def measure_late_joiner(env: Mapping[str, str], runs: int = RUNS) -> Iterator[Row]:
    """Three hold all of it; a fourth comes."""
    times, exact = [], True
    for _ in range(runs):
        with machines(4, RATE) as hosts, processes([host.prefix for host in hosts], env) as nodes:
            net = Net(hosts, nodes)
            for number in (1, 2):
                net.nodes[number].ask("hold", size=SIZE, chunk=CHUNK, publisher=False)
            net.tell_pull(3, [1, 2, 0])
            times.append(net.pulled(3)["seconds"] / UNIT_SECONDS)
            exact &= net.check(3)
    median = statistics.median(times)
    yield Row(
        "late joiner", median, "S/B", limit=1, limit_is="its own NIC", ratio=median, at_most=1.15, exact=exact,
        runs=times,
    )  # fmt: skip


def measure_death(env: Mapping[str, str], runs: int = RUNS) -> Iterator[Row]:
    """A source is killed half-way through; another holds everything. What that costs, beside an undisturbed pull."""
    costs, exact = [], True
    for _ in range(runs):
        with machines(4, RATE) as hosts, processes([host.prefix for host in hosts], env) as nodes:
            net = Net(hosts, nodes)
            net.tell_pull(1, [0], serve=True)
            undisturbed = net.pulled(1)["seconds"]
            net.tell_pull(2, [1, 0])
            time.sleep(undisturbed / 2)
            nodes[1].signal(signal.SIGKILL)
            costs.append(net.pulled(2)["seconds"] - undisturbed)
            exact &= net.check(2)
    allowed = CHUNK / RATE + SLACK_SECONDS
    median = statistics.median(costs)
    yield Row(
        "source killed half-way: what it costs", median, "s", limit=allowed, limit_is="its chunk in flight and 0.5 s",
        ratio=median / allowed, at_most=1, exact=exact, runs=costs,
    )  # fmt: skip
