"""Whether something works, by the CPU time it uses. Where there is a GPU the node agent sees more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping
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


class Rates(Generic[Key]):
    """How fast a counter of each of some processes, or groups of them, grows."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._at, self._last = 0.0, dict[Key, float]()

    def grown(self, counters: Mapping[Key, float]) -> dict[Key, float]:
        """By second since the last call, of those that it had as well."""
        now, before = self._clock(), self._last
        seconds, self._at, self._last = now - self._at, now, dict(counters)
        known = (key for key in counters if key in before and seconds > 0)
        return {key: (counters[key] - before[key]) / seconds for key in known}


class CpuMeter(Generic[Key]):
    """The share of a core that each of some processes, or groups of them, used since it was last asked."""

    def __init__(self, read: Callable[[Key], ProcessTime | None], clock: Clock = time.monotonic) -> None:
        self._read, self._rates = read, Rates[Key](clock)

    def shares(self, keys: list[Key]) -> dict[Key, float]:
        """By process, in [0, number of cores]; those that are new or gone are left out. -1 for one that is stopped.
        What is not asked about any more is forgotten."""
        used = {key: found for key in keys if (found := self._read(key)) is not None}
        shares = self._rates.grown({key: each.cpu_seconds for key, each in used.items()})
        return shares | {key: STOPPED for key, each in used.items() if each.stopped}


STOPPED = -1.0
