"""How fast chunks come, and so when one is late."""

from __future__ import annotations

from collections import deque
from statistics import median

WEIGHT = 0.3
"""Of the newest chunk in the moving average."""
PATIENCE = 4.0
"""Times the expected duration after which a source counts as stalled."""


class Pace:
    """The durations of a pull's chunks, from request to arrival, and a moving average of each source's rate."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        self._durations: deque[float] = deque(maxlen=32)

    def arrived(self, source: str, size_bytes: int, seconds: float) -> None:
        rate = size_bytes / max(seconds, 1e-6)
        before = self._rates.get(source, rate)
        self._rates[source] = before + WEIGHT * (rate - before)
        self._durations.append(seconds)

    def median_seconds(self) -> float | None:
        """Of the last chunks; None before the first."""
        return median(self._durations) if self._durations else None

    def expected_seconds(self, source: str, size_bytes: int) -> float | None:
        """How long a chunk from this source takes; None before the first."""
        rate = self._rates.get(source)
        return size_bytes / rate if rate else self.median_seconds()

    def limit_seconds(self, source: str, size_bytes: int, least: float, first: float) -> float:
        """After how long without it a chunk's source is given up: max(least, 4 x what its rate lets expect), or
        `first` where nothing has come from it yet."""
        rate = self._rates.get(source)
        return max(least, PATIENCE * size_bytes / rate) if rate else first

    def forget(self, source: str) -> None:
        """It was late: the link may be another's, too, by now, and what it did alone is no measure of it."""
        self._rates.pop(source, None)
