"""Whether the kernel has killed a process of this container because its memory limit was reached.

A kill for want of memory looks like any SIGKILL to whoever waits for the process. What tells them apart is the counter
of the container's control group. Where all processes of a container are killed together (memory.oom.group, the default
of Kubernetes on cgroup v2 since 1.28) nobody here is left to ask; then the pod's status says OOMKilled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SYSTEM = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def kills(system: Path = SYSTEM, own: Path = OWN) -> int:
    """How many processes of this container the kernel has killed for want of memory; 0 where nobody counts."""
    for path in _counters(system, own):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue  # there is none in the root group, and a container sees a part of the tree only
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _counters(system: Path, own: Path) -> Iterator[Path]:
    """Files that may have the counter, the likeliest first. Without a namespace of its own, a container's group has
    its name on the host there, and is mounted as the root."""
    for line in own.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield from (system / group.lstrip("/") / "memory.events", system / "memory.events")
        elif "memory" in controllers.split(","):
            tree = system / "memory"
            yield from (tree / group.lstrip("/") / "memory.oom_control", tree / "memory.oom_control")
