"""A cgroup per machine, which holds its daemons and all its pods: that is how all processes of a machine are found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
DAEMONS = "machine"  # the leaf for kubelet and the like; pods go beside it, under kubepods
REMOVE_SECONDS = 60.0
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def is_v2() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> tuple[Path, ...]:
    """The one unified hierarchy; or each of version 1, and the unified one that may be mounted beside them."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    folders = (Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2"))
    return tuple(folder for folder in folders if folder == ROOT or folder.parent == ROOT)


def create(cgroup: str) -> tuple[Path, ...]:
    """Create the cgroup with a leaf for daemons in every hierarchy; returns those leaves."""
    for hierarchy in hierarchies():
        parent = hierarchy
        for part in (*Path(cgroup).parts, DAEMONS):
            if is_v2():
                _delegate(parent)
            child = parent / part
            child.mkdir(exist_ok=True)
            _copy_cpuset(parent, child)
            parent = child
    return tuple(hierarchy / cgroup / DAEMONS for hierarchy in hierarchies())


def processes(cgroup: str) -> frozenset[int]:
    """Pids (of the host) in the cgroup and below it."""
    return frozenset(pid for hierarchy in hierarchies() for pid in _pids_below(hierarchy / cgroup))


def memory_bytes(cgroup: str) -> int:
    """Resident anonymous memory of the cgroup and below it; the page cache is not counted."""
    key = "anon" if is_v2() else "total_rss"
    stat = (ROOT if is_v2() else ROOT / "memory") / cgroup / "memory.stat"
    with suppress(FileNotFoundError):
        return next(int(line.split()[1]) for line in stat.read_text().splitlines() if line.split()[0] == key)
    return 0


def freeze(cgroup: str, *, frozen: bool) -> None:
    """Let all processes in the cgroup and below it stand still, or go on. They notice nothing but the time."""
    if is_v2():
        switch, word = ROOT / cgroup / "cgroup.freeze", str(int(frozen))
    else:
        switch, word = ROOT / "freezer" / cgroup / "freezer.state", "FROZEN" if frozen else "THAWED"
    with suppress(FileNotFoundError):
        switch.write_text(word)


def remove(cgroup: str) -> None:
    """Remove the cgroup with all below it. The kernel may hold on to one for a moment after its last process."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while left := [hierarchy / cgroup for hierarchy in hierarchies() if (hierarchy / cgroup).exists()]:
        for top in left:
            for path in sorted(_folders(top), key=lambda p: len(p.parts), reverse=True):
                with suppress(OSError):
                    path.rmdir()
        if time.monotonic() > deadline:
            raise ClusterError(f"cgroup {left[0]} cannot be removed; processes in it: {sorted(processes(cgroup))}")
        time.sleep(0.02)


def _folders(top: Path) -> Iterator[Path]:
    yield top
    with suppress(FileNotFoundError):
        for path in top.iterdir():
            if path.is_dir():
                yield from _folders(path)


def _pids_below(top: Path) -> Iterator[int]:
    for path in _folders(top):
        with suppress(FileNotFoundError, OSError):
            yield from map(int, (path / "cgroup.procs").read_text().split())


def _copy_cpuset(parent: Path, child: Path) -> None:
    """Version 1 gives a new cpuset no cpus and no memory nodes, and nothing can run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        mine = child / name
        if not is_v2() and mine.exists() and not mine.read_text().strip():
            mine.write_text((parent / name).read_text().strip())


def _delegate(parent: Path) -> None:
    available = (parent / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in _V2_CONTROLLERS if name in available]
    try:
        (parent / "cgroup.subtree_control").write_text(" ".join(wanted))
    except OSError as error:
        raise ClusterError(
            f"cgroup {parent} does not give its controllers to cgroups below it ({error.strerror}): it must hold no "
            "processes itself, as that of a container does. Start the cluster on the machine, or move them into a child"
        ) from error
