"""The same scheduler in virtual time, with more receivers than one box can run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from table import Row

from weightsync.simulation.scenario import Scenario, repeat

RECEIVERS, CHUNKS = 63, 256


def measure(runs: int) -> Iterator[Row]:
    """Completion of the last receiver, each run with a seed of its own."""
    results = repeat(Scenario(RECEIVERS, chunks=CHUNKS), runs)
    times = [result.worst() for result in results]
    median = statistics.median(times)
    yield Row(
        f"{RECEIVERS} receivers, simulated", median, "S/B", limit=1, limit_is="one NIC", ratio=median, at_most=1.15,
        exact=not any(result.unfinished for result in results), runs=times,
    )  # fmt: skip
