"""The wires: a bridge in the host, one network namespace and one veth pair per machine, plain routes between them.

The host translates and forwards nothing: machines share a bridge, and each routes to the others' pods.
"""

from __future__ import annotations

import json
from ipaddress import IPv4Network

from . import layout
from .layout import Cluster, Machine
from .process import run


def host_routes() -> frozenset[IPv4Network]:
    """Destinations that the host routes somewhere, the default route aside."""
    routes = json.loads(run("ip", "-json", "-4", "route", "show", "table", "all"))
    return frozenset(IPv4Network(route["dst"], strict=False) for route in routes if route["dst"][0].isdigit())


def add_bridge(cluster: Cluster) -> None:
    bridge = cluster.bridge
    run("ip", "-batch", "-", stdin="\n".join([
        f"link add {bridge} type bridge stp_state 0 forward_delay 0",
        f"addr add {cluster.gateway}/24 dev {bridge}",
        f"link set {bridge} up",
        *(f"route add {worker.pods} via {worker.address} dev {bridge}" for worker in cluster.workers),
    ]))  # fmt: skip


def add_machine(cluster: Cluster, machine: Machine) -> None:
    """Give a machine its network namespace, its link to the bridge and its routes."""
    run("ip", "netns", "add", machine.netns)
    run("ip", "-batch", "-", stdin="\n".join([
        f"link add {machine.veth} type veth peer name eth0 address {machine.mac} netns {machine.netns}",
        f"link set {machine.veth} master {cluster.bridge} up",
    ]))  # fmt: skip
    others = (worker for worker in cluster.workers if worker != machine)
    run("ip", "-n", machine.netns, "-batch", "-", stdin="\n".join([
        "link set lo up",
        f"addr add {machine.address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {cluster.gateway}",
        *(f"route add {other.pods} via {other.address}" for other in others),
    ]))  # fmt: skip


def remove_machine(machine: Machine) -> None:
    """Remove a machine's link and namespace. Its processes must be gone: they would keep the namespace alive."""
    _remove_links([machine.veth])
    if machine.netns in namespaces():
        run("ip", "netns", "del", machine.netns)


def set_link(machine: Machine, *, up: bool) -> None:
    """Plug or unplug the machine's cable, at the bridge's end: the machine keeps its addresses and routes."""
    run("ip", "link", "set", machine.veth, "up" if up else "down")


def link_is_up(machine: Machine) -> bool:
    return any(link["ifname"] == machine.veth and "UP" in link["flags"] for link in _links())


def limit_rate(machine: Machine, megabits: int | None) -> None:
    """Hold the machine's traffic in each direction to a rate; None lifts the limit, if there is one."""
    ends = (["tc"], machine.veth), (["nsenter", f"--net=/run/netns/{machine.netns}", "tc"], "eth0")
    for tc, device in ends:
        if megabits is not None:
            run(*tc, "qdisc", "replace", "dev", device, "root", *_bucket(megabits))
        elif " tbf " in run(*tc, "qdisc", "show", "dev", device, "root"):
            run(*tc, "qdisc", "delete", "dev", device, "root")


def _bucket(megabits: int) -> tuple[str, ...]:
    # A bucket smaller than one segment offloaded by the sender (64 KiB) would drop it for ever.
    return ("tbf", "rate", f"{megabits}mbit", "burst", str(max(262144, megabits * 1250)), "latency", "200ms")


def remove_all(cluster: str) -> None:
    """Remove every namespace, link and route that carries the cluster's name."""
    _remove_links([link["ifname"] for link in _links() if layout.is_link_of(cluster, link["ifname"])])
    for netns in namespaces():
        if layout.is_netns_of(cluster, netns):
            run("ip", "netns", "del", netns)


def leftovers(cluster: str) -> list[str]:
    """Names of namespaces and links of that cluster on this box."""
    links = [link["ifname"] for link in _links() if layout.is_link_of(cluster, link["ifname"])]
    return links + [netns for netns in namespaces() if layout.is_netns_of(cluster, netns)]


def namespaces() -> list[str]:
    return [entry["name"] for entry in json.loads(run("ip", "-json", "netns", "list") or "[]")]


def _remove_links(names: list[str]) -> None:
    present = {link["ifname"] for link in _links()}
    for name in names:
        if name in present:
            run("ip", "link", "del", name)


def _links() -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(run("ip", "-json", "link", "show"))
    return found
