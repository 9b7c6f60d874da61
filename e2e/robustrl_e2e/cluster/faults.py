"""Faults that really happen to machines: power cuts, unplugged and slow cables, an API server that hangs."""

from __future__ import annotations

import signal
import time

from . import kind, machine, native, network
from .errors import ClusterError
from .layout import Cluster


def kill_node(cluster: Cluster, name: str) -> None:
    """Cut the node's power: its cable goes dead first, then all its processes; the API server hears no goodbye."""
    if cluster.provider == "kind":
        return kind.kill_node(name)
    worker = cluster.worker(name)
    network.set_link(worker, up=False)
    machine.kill(worker)
    return None


def revive_node(cluster: Cluster, name: str) -> None:
    """Boot a killed node and wait until it is Ready. Its disk is as it was, its memory not."""
    if cluster.provider == "kind":
        return kind.revive_node(name)
    return native.revive(cluster, [cluster.worker(name)])


def cut_node(cluster: Cluster, name: str) -> None:
    """Unplug the node: all on it runs on, and nobody can reach it."""
    if cluster.provider == "kind":
        return kind.cut_node(name)
    return network.set_link(cluster.worker(name), up=False)


def heal_node(cluster: Cluster, name: str) -> None:
    """Plug the node in again."""
    if cluster.provider == "kind":
        return kind.heal_node(name)
    return network.set_link(cluster.worker(name), up=True)


def freeze_node(cluster: Cluster, name: str) -> None:
    """Let the node stand still: it answers nobody, and when it is thawed it goes on as if nothing had happened."""
    if cluster.provider == "kind":
        return kind.freeze_node(name)
    worker = cluster.worker(name)
    # Its network is the kernel's, which is not frozen and would take what nobody reads.
    network.set_link(worker, up=False)
    return machine.freeze(worker, frozen=True)


def thaw_node(cluster: Cluster, name: str) -> None:
    """Let a frozen node go on."""
    if cluster.provider == "kind":
        return kind.thaw_node(name)
    worker = cluster.worker(name)
    machine.freeze(worker, frozen=False)
    return network.set_link(worker, up=True)


def slow_node(cluster: Cluster, name: str, megabits: int | None) -> None:
    """Hold the node's traffic to a rate in megabits per second, each way; None lifts it. Native clusters only."""
    _require_native(cluster)
    network.limit_rate(cluster.worker(name), megabits)


def stop_api(cluster: Cluster, seconds: float) -> None:
    """Let the API server hang for so long: connections stay open and nothing answers. Native clusters only."""
    _require_native(cluster)
    server = machine.find(cluster.control_plane, "kube-apiserver")
    if server is None:
        raise ClusterError("the API server is not running")
    server.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        server.signal(signal.SIGCONT)


def _require_native(cluster: Cluster) -> None:
    if cluster.provider != "native":
        raise ClusterError("this fault is not available with kind")
