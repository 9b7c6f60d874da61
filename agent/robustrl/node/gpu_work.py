"""Whether a GPU works, from one reading of it: the tensor units' own counter, and whether another counter agrees. Pure.

Tensor activity alone proves nothing: the profiling counters are known to stick at zero while the GPU works. So the
other counters are heard, and they do not weigh the same:

- Data moving to or from memory, or power near what the GPU drew when its tensor units worked, contradict idleness.
- That a kernel is on the engine does not: one that waits in a collective for a dead peer stays there for ever, moves
  nothing and draws little. It contradicts only where neither memory nor power is known.
- The engine's time according to the driver and according to the profiling counters are the same thing measured twice.
  Where the first is high and the second nothing, the profiling counters are broken.
"""

from __future__ import annotations

from enum import Enum

from robustrl.node.exposition import GpuReading

POWER_SHARE = 0.6
"""Of the most that the GPU has drawn while its tensor units worked: whoever draws more than that works."""
UTILIZED_PERMILLE = 50.0


class Work(Enum):
    ACTIVE = "active"
    IDLE = "idle"
    """The tensor units idle and another counter agrees."""
    UNKNOWN = "unknown"
    """The page does not tell."""
    DOUBTFUL = "doubtful"
    """The tensor units are said to idle, and another counter says that the GPU works."""


def judge(reading: GpuReading, active_permille: float, peak_watts: float | None) -> tuple[Work, str]:
    """What a reading shows, with the other counter's word for a person.

    Args:
        peak_watts: the most that this GPU has drawn while its tensor units worked, where that has been seen.
    """
    if reading.tensor_permille is None:
        return Work.UNKNOWN, ""
    if reading.tensor_permille >= active_permille:
        return Work.ACTIVE, ""
    against = _contradiction(reading, active_permille, peak_watts)
    if against:
        return Work.DOUBTFUL, against
    agreeing = _agreement(reading, peak_watts)
    return (Work.IDLE, agreeing) if agreeing else (Work.UNKNOWN, "")


def _contradiction(reading: GpuReading, active_permille: float, peak_watts: float | None) -> str:
    memory, watts, engine = reading.memory_permille, reading.power_watts, reading.engine_permille
    if memory is not None and memory >= active_permille:
        return f"its memory is busy {memory:.0f} permille of the time"
    if watts is not None and peak_watts is not None and watts >= POWER_SHARE * peak_watts:
        return f"it draws {watts:.0f} W of at most {peak_watts:.0f} W seen"
    utilized = reading.utilization_permille
    if utilized is not None and utilized >= UTILIZED_PERMILLE and engine is not None and engine < active_permille:
        return f"the driver has its engine busy {utilized:.0f} permille of the time and the profiler {engine:.0f}"
    blind = memory is None and (watts is None or peak_watts is None)
    if blind and engine is not None and engine >= active_permille:
        return f"its engine is busy {engine:.0f} permille of the time and nothing else is known"
    return ""


def _agreement(reading: GpuReading, peak_watts: float | None) -> str:
    """The second counter's word that the GPU idles; empty where there is none."""
    if reading.memory_permille is not None:
        return f"memory {reading.memory_permille:.0f} permille"
    if reading.power_watts is not None and peak_watts is not None:
        return f"{reading.power_watts:.0f} W of {peak_watts:.0f} W"
    if reading.engine_permille is not None:
        return f"engine {reading.engine_permille:.0f} permille"
    return ""
