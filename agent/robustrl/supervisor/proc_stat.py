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
