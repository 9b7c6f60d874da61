"""Which fault strikes next, and when: all of it decided by a seed, but for what the job allows at the moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from robustrl_operator.faults.matrix import Row

MEAN_GAP_SECONDS = 30.0


class Storm:
    """Rows of the fault matrix in random order, each once before any comes again, at exponential gaps.

    Args:
        rows: the faults there are.
        mean_gap_seconds: from one fault to the next.
    """

    def __init__(self, rows: Iterable[Row], seed: int, mean_gap_seconds: float = MEAN_GAP_SECONDS) -> None:
        self._rows = tuple(rows)
        self._random = random.Random(seed)
        self._rate = 1 / mean_gap_seconds
        self._deck: list[Row] = []

    def gap_seconds(self) -> float:
        """How long it is quiet before the next fault."""
        return self._random.expovariate(self._rate)

    def draw(self, possible: Callable[[Row], bool]) -> Row | None:
        """The next fault of those that can strike now; None if none can. The others keep their place."""
        if not self._deck:
            self._deck = self._random.sample(self._rows, len(self._rows))
        row = next(filter(possible, self._deck), None)
        if row is not None:
            self._deck.remove(row)
        return row
