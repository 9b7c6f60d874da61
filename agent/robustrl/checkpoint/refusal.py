"""Storage that refuses on purpose what is written to it, for a while, as a volume that is full or read-only does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


class Refusal:
    """Asked before each write; the volume itself is not touched.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._number, self._until = 0, float("-inf")

    def begin(self, number: int, seconds: float) -> None:
        """From now on for so long every write ends with this error (errno)."""
        self._number, self._until = number, self._clock() + seconds

    def check(self) -> None:
        """Before a write.

        Raises:
            OSError: it is refused.
        """
        if self._clock() < self._until:
            raise OSError(self._number, os.strerror(self._number))
