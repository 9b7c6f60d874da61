"""Takes the exit statuses of adopted processes, as the first process of a container must.

Whatever a process under care started is this agent's child once its own parent has ended. Dead and asked by nobody it
keeps a process ID, and a container has only so many of them: each epoch's data loaders would leave some.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from robustrl.supervisor.proc_stat import PARENT, STATE, read_stat

LOOK_SECONDS = 10.0


async def reap_orphans() -> None:
    """Look now and then, until cancelled."""
    seen: frozenset[int] = frozenset()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        seen = await asyncio.to_thread(reap, seen)


def reap(seen: frozenset[int]) -> frozenset[int]:
    """Reap the children that were dead at the last look as well: whoever cares for a child takes its status at once.

    Returns:
        Those that are dead now and were not then.
    """
    dead = dead_children(os.getpid())
    for pid in dead & seen:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return dead - seen


def dead_children(parent: int) -> frozenset[int]:
    """Processes that have ended and that nobody has asked for their status."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    stats = ((pid, read_stat(pid)) for pid in pids)
    return frozenset(pid for pid, stat in stats if stat and stat[STATE] == "Z" and int(stat[PARENT]) == parent)
