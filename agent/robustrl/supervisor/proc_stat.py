"""/proc/PID/stat, for whoever looks at other processes."""

from __future__ import annotations

from pathlib import Path

STATE, PARENT, SESSION, USER_TICKS, SYSTEM_TICKS = 0, 1, 3, 11, 12
"""Fields (proc(5)), counted after the command's name, which may hold anything."""


def read_stat(pid: int) -> list[str] | None:
    """The fields after the command's name; None where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def descendants(root: int) -> list[int]:
    """Every process below one, parents first."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            stat = read_stat(int(entry.name))
            if stat is not None:
                parents[int(entry.name)] = int(stat[PARENT])
    below: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        below += sorted(frontier)
    return below
