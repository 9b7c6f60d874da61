"""Whether something works, by the CPU time it uses. Where there is a GPU the node agent sees more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from robustrl.supervisor.proc_stat import STATE, SYSTEM_TICKS, USER_TICKS, read_stat

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Clock = Callable[[], float]
Key = TypeVar("Key", bound=Hashable)


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


class CpuMeter(Generic[Key]):
    """The share of a core that each of some processes, or groups of them, used since it was last asked."""

    def __init__(self, read: Callable[[Key], ProcessTime | None], clock: Clock = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._last: dict[Key, tuple[float, float]] = {}

    def shares(self, keys: list[Key]) -> dict[Key, float]:
        """By process, in [0, number of cores]; those that are new or gone are left out. -1 for one that is stopped.
        What is not asked about any more is forgotten."""
        now, found = self._clock(), {}
        before, self._last = self._last, {}
        for key in keys:
            used = self._read(key)
            if used is None:
                continue
            self._last[key] = (now, used.cpu_seconds)
            if used.stopped:
                found[key] = STOPPED
            elif key in before and now > before[key][0]:
                found[key] = (used.cpu_seconds - before[key][1]) / (now - before[key][0])
        return found


STOPPED = -1.0
