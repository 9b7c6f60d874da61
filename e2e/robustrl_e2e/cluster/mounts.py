"""What is mounted in the host."""

from __future__ import annotations

import re
from pathlib import Path


def points() -> list[str]:
    """Mount points, oldest first; one that is mounted twice is listed twice.

    The kernel's own list, because `os.path.ismount` does not see a bind mount within one file system.
    """
    return [_unescape(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def _unescape(path: str) -> str:
    """The kernel writes spaces and the like as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
