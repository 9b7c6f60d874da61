"""Machines with a NIC each, on one box: a network namespace for every process, one bridge between them.

Both directions of every NIC are limited by `tc tbf` to the same rate: what leaves, at the namespace's end of its veth;
what arrives, at the bridge's end. Everything carries this run's prefix and is removed in the end. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = f"wb{os.getpid()}"
FOLDERS = {"netns": Path("/run/netns"), "link": Path("/sys/class/net")}
SUBNET = "10.213.77"
BURST_BYTES = 128 * 1024
"""More than one segment that the kernel hands over at once (64 KiB), and little beside the bytes of a chunk."""
QUEUE_MILLISECONDS = 10
"""A switch's port queues for far less than a chunk takes; a chunk takes a quarter of a second here."""
ETHERNET_HEADERS = 1514 / 1448
"""Bytes on the wire for each byte that TCP carries."""


@dataclass(frozen=True)
class Machine:
    """One end of the network."""

    namespace: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command line begins with to run there."""
        return ("ip", "netns", "exec", self.namespace)


def why_not() -> str:
    """Why this machine cannot have such a network; empty if it can."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} missing (package iproute2)" if missing else ""


@contextlib.contextmanager
def machines(count: int, bytes_per_second: float) -> Iterator[list[Machine]]:
    """So many machines, whose NICs carry `bytes_per_second` of TCP's payload each way."""
    sweep()
    bridge = f"{PREFIX}br"
    made: list[Machine] = []
    try:
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "link", "set", bridge, "up")
        for number in range(count):
            machine = Machine(f"{PREFIX}n{number}", f"{SUBNET}.{number + 1}")
            _run("ip", "netns", "add", machine.namespace)
            made.append(machine)
            _plug_in(machine, f"{PREFIX}v{number}", bridge, bytes_per_second)
        yield made
    finally:
        for number, machine in enumerate(made):
            # The namespace goes some time after this; its cable at once, so that the next machine may have its name.
            _run("ip", "link", "del", f"{PREFIX}v{number}", check=False)
            _run("ip", "netns", "del", machine.namespace, check=False)
        _run("ip", "link", "del", bridge, check=False)


def sweep() -> None:
    """Remove what runs left that were killed: namespaces, cables and bridges named after processes that are gone."""
    for kind, folder in FOLDERS.items():
        for name in os.listdir(folder) if folder.exists() else ():
            owner = re.fullmatch(r"wb(\d+)(n\d+|v\d+|br)", name)
            if owner and not Path(f"/proc/{owner[1]}").exists():
                _run("ip", kind, "del", name, check=False)


def _plug_in(machine: Machine, port: str, bridge: str, bytes_per_second: float) -> None:
    inside = ("ip", "-n", machine.namespace)
    _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", machine.namespace)
    _run("ip", "link", "set", port, "master", bridge, "up")
    _run(*inside, "link", "set", "lo", "up")
    _run(*inside, "address", "add", f"{machine.address}/24", "dev", "eth0")
    _run(*inside, "link", "set", "eth0", "up")
    _limit(("tc",), port, bytes_per_second)
    _limit(("tc", "-n", machine.namespace), "eth0", bytes_per_second)
    # Linux's own discipline, below the limit: three bands by what sockets say of their traffic.
    _run("tc", "-n", machine.namespace, "qdisc", "add", "dev", "eth0", "parent", "1:1", "pfifo_fast")


def _limit(tc: tuple[str, ...], device: str, bytes_per_second: float) -> None:
    rate = f"{int(bytes_per_second * ETHERNET_HEADERS * 8)}bit"
    shape = ("tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", f"{QUEUE_MILLISECONDS}ms")
    _run(*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", *shape)


def _run(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
