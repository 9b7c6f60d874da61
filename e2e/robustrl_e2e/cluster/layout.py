"""What belongs to a cluster, by name: machines, addresses, interfaces, cgroups. Pure, nothing is touched here.

Everything a cluster leaves on the box carries the cluster's name (or a digest, where 15 letters are the limit), so
that what an interrupted run left behind can be found and removed, and nothing else is.

A cluster owns one slot: the /24 172.30.SLOT.0 for its machines and 10.(128+SLOT).0.0/16 for its pods.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import chain
from typing import Literal

SLOTS = 64
MAX_NODES = 200
TWO_WITHOUT_GPU = 9
"""From so many nodes on the managers and the operator survive the death of one of theirs."""
SERVICES = IPv4Network("10.96.0.0/16")
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
CONTROL_PLANE = "control-plane"
Provider = Literal["native", "kind"]

_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


@dataclass(frozen=True)
class Machine:
    """One machine of a native cluster: index 0 is the control plane, 1 and up are nodes."""

    cluster: str
    slot: int
    index: int

    @property
    def name(self) -> str:
        return f"node{self.index}" if self.index else CONTROL_PLANE

    @property
    def address(self) -> str:
        return f"172.30.{self.slot}.{10 + self.index}"

    @property
    def mac(self) -> str:
        """Fixed, so that a machine that was booted again is found by its neighbours' ARP caches."""
        return f"02:52:52:00:{self.slot:02x}:{self.index:02x}"

    @property
    def pods(self) -> IPv4Network:
        return IPv4Network(f"10.{128 + self.slot}.{self.index}.0/24")

    @property
    def netns(self) -> str:
        return f"rrl-{self.cluster}-{self.name}"

    @property
    def veth(self) -> str:
        return f"{bridge_name(self.cluster)}-{self.index}"

    @property
    def cgroup(self) -> str:
        """Relative to the root of each cgroup hierarchy."""
        return f"{cluster_cgroup(self.cluster)}/{self.name}"


@dataclass(frozen=True)
class Cluster:
    """A development cluster. `slot` is meaningless with kind, which lays out its own network."""

    name: str
    nodes: int
    provider: Provider = "native"
    slot: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"cluster name {self.name!r}: use up to 20 of a-z, 0-9 and -, a letter first")
        if not 1 <= self.nodes <= MAX_NODES:
            raise ValueError(f"{self.nodes} nodes: use 1 to {MAX_NODES}")

    @property
    def bridge(self) -> str:
        return bridge_name(self.name)

    @property
    def gateway(self) -> str:
        """The host's own address on the cluster's bridge."""
        return f"172.30.{self.slot}.1"

    @property
    def machines_range(self) -> IPv4Network:
        return machines_range(self.slot)

    @property
    def pods_range(self) -> IPv4Network:
        return pods_range(self.slot)

    @property
    def control_plane(self) -> Machine:
        return Machine(self.name, self.slot, 0)

    @property
    def workers(self) -> tuple[Machine, ...]:
        return tuple(Machine(self.name, self.slot, i) for i in range(1, self.nodes + 1))

    @property
    def machines(self) -> tuple[Machine, ...]:
        return (self.control_plane, *self.workers)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Kubernetes node names, in order; the control plane is not one of them."""
        if self.provider == "kind":
            return tuple(f"{self.name}-worker{i if i > 1 else ''}" for i in range(1, self.nodes + 1))
        return tuple(m.name for m in self.workers)

    @property
    def api_url(self) -> str:
        return f"https://{self.control_plane.address}:6443"

    def worker(self, name: str) -> Machine:
        for machine in self.workers:
            if machine.name == name:
                return machine
        raise ValueError(f"cluster {self.name} has no node {name!r}; it has {', '.join(self.node_names)}")

    def has_gpu(self, node: str) -> bool:
        """All nodes have one (fake) GPU but the last, which is for managers and the operator; of nine and more, two."""
        return node not in self.node_names[-1 if self.nodes < TWO_WITHOUT_GPU else -2 :]

    def pool(self, node: str) -> str:
        return "gpu" if self.has_gpu(node) else "cpu"


def bridge_name(cluster: str) -> str:
    return f"rrl-{hashlib.sha256(cluster.encode()).hexdigest()[:6]}"


def cluster_cgroup(cluster: str) -> str:
    return f"robustrl-{cluster}"


def is_netns_of(cluster: str, netns: str) -> bool:
    """True for exactly the names that `Machine.netns` gives; cluster `a` never claims those of cluster `a-node1`."""
    return re.fullmatch(rf"rrl-{re.escape(cluster)}-(node\d+|{CONTROL_PLANE})", netns) is not None


def is_link_of(cluster: str, link: str) -> bool:
    return re.fullmatch(rf"{bridge_name(cluster)}(-\d+)?", link) is not None


def machines_range(slot: int) -> IPv4Network:
    return IPv4Network(f"172.30.{slot}.0/24")


def pods_range(slot: int) -> IPv4Network:
    return IPv4Network(f"10.{128 + slot}.0.0/16")


def choose_slot(name: str, taken: frozenset[IPv4Network]) -> int:
    """The name's own slot, or the next one whose ranges overlap nothing in `taken` (the host's routes)."""
    first = int(hashlib.sha256(name.encode()).hexdigest()[6:12], 16) % SLOTS
    for slot in chain(range(first, SLOTS), range(first)):
        ours = (machines_range(slot), pods_range(slot))
        if not any(mine.overlaps(other) for mine in ours for other in taken):
            return slot
    raise ValueError(f"all {SLOTS} address ranges of development clusters are in use on this machine")
