"""Whether processes of which nothing else is known do anything at all.

Who loads a large model slowly may use next to no processor, but reads; who waits for a disk or a file server does not
even that, and is at work all the same.
"""

from __future__ import annotations

import time
from pathlib import Path

from robustrl.supervisor.cpu_time import Clock, CpuMeter, Rates, process_time
from robustrl.supervisor.proc_stat import STATE, read_stat

COUNTERS = frozenset({"rchar", "wchar", "read_bytes"})
"""Of /proc/PID/io (proc(5)): what went through read and write, and what mapped files had to be read from disk."""
CHATTER_BYTES = 16 * 1024
"""Bytes a second that are no work: a line of log, an answer to whoever asks whether it is ready."""


class StandstillMeter:
    """Looks at some processes again and again.

    Args:
        active_permille: of a core; who uses less in all does not work.
        clock: monotonic seconds.
    """

    def __init__(self, active_permille: int, clock: Clock = time.monotonic) -> None:
        self._active_permille = active_permille
        self._cpu, self._bytes = CpuMeter(process_time, clock), Rates[int](clock)

    def all_still(self, pids: list[int]) -> bool:
        """Whether none has done anything since the last look; False while that is not known of any."""
        shares = self._cpu.shares(pids)
        rates = self._bytes.grown({pid: moved for pid in pids if (moved := bytes_moved(pid)) is not None})
        if not shares or sum(rates.values()) >= CHATTER_BYTES:
            return False
        used = sum(max(0.0, share) for share in shares.values())
        return used * 1000 < self._active_permille and not any(waits_for_disk(pid) for pid in pids)


def bytes_moved(pid: int) -> int | None:
    """What a process, with its children that have ended, has read and written so far; None where nobody may know."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    pairs = (line.partition(":") for line in lines)
    return sum(int(count) for name, _, count in pairs if name in COUNTERS)


def waits_for_disk(pid: int) -> bool:
    """Whether any thread of a process does."""
    try:
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return any(stat[STATE] == "D" for thread in threads if (stat := read_stat(thread)) is not None)
