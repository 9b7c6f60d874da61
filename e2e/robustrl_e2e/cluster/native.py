"""The life of a cluster made of this box's own namespaces: up, down, and cleaning up after an interrupted one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from . import (
    binaries,
    cgroups,
    control_plane,
    dns,
    images,
    kernel,
    layout,
    machine,
    mounts,
    network,
    node,
    preflight,
    state,
    storage,
    trash,
)
from .api import Api
from .errors import ClusterError
from .layout import Cluster, Machine
from .process import run
from .progress import say, step


def up(name: str, nodes: int) -> Cluster:
    """Start the cluster, or mend the one that runs: dead nodes are booted, cut links plugged in again, a stopped
    API server goes on."""
    preflight.require_root()
    preflight.ensure(preflight.CLUSTER)
    with state.locked(name):
        binaries.ensure(binaries.PAUSE, binaries.KUBERNETES, binaries.COREDNS)
        cluster = state.load(name)
        if cluster is not None and machine.alive(cluster.control_plane):
            return _mend(cluster, nodes)
        if found := remains(name):
            say(f"removing what an interrupted run left of cluster {name}: {', '.join(found)}")
        clean(name)
        return _start(name, nodes)


def down(name: str) -> None:
    """Stop the cluster and remove everything that carries its name. Nothing happens if there is nothing."""
    preflight.require_root()
    with state.locked(name), step(f"cluster {name} down"):
        clean(name)
        kernel.restore()


def boot_node(cluster: Cluster, worker: Machine) -> None:
    """Boot a node, first or again. Its network is new, its disk is as it was left."""
    machine.kill(worker)
    cgroups.remove(worker.cgroup)
    network.remove_machine(worker)
    network.add_machine(cluster, worker)
    machine.boot(worker, node.daemons(cluster, worker), binaries.root())


def revive(cluster: Cluster, workers: Sequence[Machine]) -> None:
    """Boot nodes that were killed and wait until they are Ready again."""
    began = _next_second()
    for worker in workers:
        boot_node(cluster, worker)
    names = tuple(worker.name for worker in workers)
    node.wait_ready(cluster, Api(state.kubeconfig(cluster.name)), names, since=began)


def clean(name: str) -> None:
    """Remove processes, namespaces, links, cgroups and the folder of that cluster, in whatever state they are."""
    top = layout.cluster_cgroup(name)
    for part in _known_machines(name):
        machine.kill(part)
    machine.kill_cgroup(top)
    network.remove_all(name)
    _unmount_below(state.folder(name))
    cgroups.remove(top)
    state.forget(name)
    if state.folder(name).exists():
        trash.throw_away(state.folder(name))


def remains(name: str) -> list[str]:
    """What of that cluster is on this box, in words; empty when it is gone."""
    count = len(cgroups.processes(layout.cluster_cgroup(name)))
    processes = [f"{count} processes"] if count else []
    groups = [f"cgroup {h / layout.cluster_cgroup(name)}" for h in cgroups.hierarchies()[:1]
              if (h / layout.cluster_cgroup(name)).exists()]  # fmt: skip
    folder = [str(state.folder(name))] if state.folder(name).exists() else []
    return processes + network.leftovers(name) + groups + folder


@dataclass(frozen=True)
class MachineStatus:
    """What a machine looks like from the host. Memory is resident and anonymous, pods included."""

    name: str
    running: bool
    linked: bool
    memory_bytes: int
    processes: int


def status(cluster: Cluster) -> list[MachineStatus]:
    return [
        MachineStatus(
            part.name, machine.alive(part), network.link_is_up(part),
            cgroups.memory_bytes(part.cgroup), len(cgroups.processes(part.cgroup)),
        )
        for part in cluster.machines
    ]  # fmt: skip


def _start(name: str, nodes: int) -> Cluster:
    began = time.monotonic()
    # Its record first: the end of another cluster would take back what is prepared for this one.
    cluster = _claim(name, nodes)
    kernel.prepare()
    with step("network, certificates and configuration"):
        storage.prepare(name)
        _each(lambda part: network.add_machine(cluster, part), cluster.machines)
        control_plane.configure(cluster)
        for worker in cluster.workers:
            node.configure(cluster, worker)
    with step("disk written back"):
        os.sync()  # what an installation left to be written would hold the first fsync of every daemon
    machine.boot(cluster.control_plane, control_plane.daemons(cluster), binaries.root())
    for worker in cluster.workers:
        machine.boot(worker, node.daemons(cluster, worker), binaries.root())
    _furnish(cluster)
    say(f"cluster {name} is up after {time.monotonic() - began:.1f} s")
    return cluster


def _furnish(cluster: Cluster) -> None:
    """What pods need beside machines; done again, it changes nothing. All nodes are Ready in the end."""
    images.load(cluster, images.pause())
    api = control_plane.wait_ready(cluster)
    dns.install(cluster, api)
    storage.install(api)
    node.wait_ready(cluster, api, cluster.node_names)
    _furnished(cluster).touch()


def _furnished(cluster: Cluster) -> Path:
    """A mark: the start was not interrupted before its end."""
    return state.folder(cluster.name) / "furnished"


def _claim(name: str, nodes: int) -> Cluster:
    """Take a free slot of addresses; the bridge's routes mark it as taken."""
    with state.locked("_slots"):
        cluster = Cluster(name, nodes, "native", layout.choose_slot(name, network.host_routes()))
        state.save(cluster)
        network.add_bridge(cluster)
    return cluster


def _mend(cluster: Cluster, nodes: int) -> Cluster:
    if nodes > cluster.nodes:
        raise ClusterError(
            f"cluster {cluster.name} is running with {cluster.nodes} nodes, and {nodes} are needed; "
            f"take it down first: make cluster-down CLUSTER={cluster.name}"
        )
    if server := machine.find(cluster.control_plane, "kube-apiserver"):
        # Who stopped it for a while may have been killed meanwhile.
        server.signal(signal.SIGCONT)
    control_plane.wait_ready(cluster)
    for part in cluster.machines:
        machine.freeze(part, frozen=False)
        if machine.alive(part) and not network.link_is_up(part):
            say(f"plugging in {part.name}")
            network.set_link(part, up=True)
    if dead := [worker for worker in cluster.workers if not machine.alive(worker)]:
        say(f"booting {', '.join(worker.name for worker in dead)}")
        revive(cluster, dead)
    if not _furnished(cluster).exists():
        _furnish(cluster)
    say(f"cluster {cluster.name} is running")
    return cluster


def _known_machines(name: str) -> tuple[Machine, ...]:
    cluster = state.load(name)
    return cluster.machines if cluster is not None else ()


def _unmount_below(folder: Path) -> None:
    """The folder of volumes and what is on it; whatever else there is must not be deleted through either."""
    for mount in reversed(mounts.points()):
        if mount.startswith(f"{folder}{os.sep}"):
            run("umount", "--lazy", mount)


def _next_second() -> datetime:
    """Wait for a new second: kubelets report in whole ones, and a report from before must not pass for a new one."""
    time.sleep(1 - time.time() % 1)
    return datetime.now(UTC).replace(microsecond=0)


def _each(action: Callable[[Machine], None], machines: Iterable[Machine]) -> None:
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(action, machines))
