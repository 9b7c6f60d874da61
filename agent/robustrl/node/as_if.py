"""What a page shows of a GPU when its exporter is taken, on purpose, for one that is absent, stuck or lying. Pure.

The page is changed before anybody judges it, so what follows is what follows from such an exporter.
"""

from __future__ import annotations

from dataclasses import replace

from robustrl.node.exposition import GpuReading
from robustrl_api.node import AsIf

PROFILING = ("tensor_permille", "engine_permille", "memory_permille")
WORK = (*PROFILING, "utilization_permille", "power_watts")
"""All that tells whether a GPU works."""
OF_PAGES = frozenset({AsIf.ABSENT, AsIf.STUCK, AsIf.IDLE})
"""Words that change what a page shows. An XID is made up beside it, of the pod alone."""
OFF_THE_BUS_XID = 79


def shown(reading: GpuReading, word: str) -> GpuReading | None:
    """The reading as the exporter would show it; None where it would show nothing.

    Args:
        word: one of `OF_PAGES`; with any other the reading is what it is.
    """
    if word == AsIf.ABSENT:
        return None
    if word == AsIf.STUCK:
        return _at_zero(reading, PROFILING)
    if word == AsIf.IDLE:
        return _at_zero(reading, WORK)
    return reading


def _at_zero(reading: GpuReading, counters: tuple[str, ...]) -> GpuReading:
    """A counter that the card does not have stays absent."""
    zero: dict[str, float] = {name: 0.0 for name in counters if getattr(reading, name) is not None}
    return replace(reading, **zero)  # type: ignore[arg-type]
