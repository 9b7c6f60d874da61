"""Whether a process works, by the CPU time it uses. Where there is a GPU the node agent sees more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from robustrl.supervisor.proc_stat import STATE, SYSTEM_TICKS, USER_TICKS, read_stat

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """What a process has used so far, in seconds of one core, and whether it is stopped by a signal."""

    cpu_seconds: float
    stopped: bool


def process_time(pid: int) -> ProcessTime | None:
    """None where the process is gone."""
    fields = read_stat(pid)
    if fields is None:
        return None
    ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
    return ProcessTime(ticks / TICKS_PER_SECOND, fields[STATE] == "T")


class CpuMeter:
    """The share of a core that each of some processes used since it was last asked."""

    def __init__(
        self,
        read: Callable[[int], ProcessTime | None] = process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._clock = read, clock
        self._last: dict[int, tuple[float, float]] = {}

    def shares(self, pids: list[int]) -> dict[int, float]:
        """By process, in [0, number of cores]; those that are new or gone are left out. -1 for one that is stopped."""
        now, found = self._clock(), {}
        for pid in pids:
            used = self._read(pid)
            if used is None:
                continue
            before = self._last.get(pid)
            self._last[pid] = (now, used.cpu_seconds)
            if used.stopped:
                found[pid] = STOPPED
            elif before is not None and now > before[0]:
                found[pid] = (used.cpu_seconds - before[1]) / (now - before[0])
        return found


STOPPED = -1.0
