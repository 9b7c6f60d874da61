"""Folders that are no longer wanted, deleted in the background.

A used cluster is a hundred thousand small files. Where the disk is mounted with `discard`, deleting them takes more
than a minute, and nobody needs to wait for that.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from . import state

PREFIX = ".trash-"


def throw_away(folder: Path) -> None:
    """Move the folder out of the way at once and delete it in a process that outlives this one."""
    folder.rename(state.state_root() / f"{PREFIX}{folder.name}-{time.time_ns()}")
    empty()


def empty() -> None:
    """Delete what is in the trash, also what an interrupted deletion left. Never crosses into another file system."""
    if folders := sorted(state.state_root().glob(f"{PREFIX}*")):
        subprocess.Popen(
            ["nice", "-n", "19", "rm", "-rf", "--one-file-system", "--", *folders],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True,
        )  # fmt: skip
