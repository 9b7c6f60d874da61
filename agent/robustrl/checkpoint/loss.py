"""A checkpoint that is lost on purpose: every copy of it counts as damaged. None is touched."""

from __future__ import annotations

import time
from collections.abc import Callable

from robustrl_api.version import Version

PATIENCE_SECONDS = 60.0
"""Within this time the restore begins that is meant: the trainers were killed."""


class Loss:
    """Which one that is turns out when the next restore begins: the one that it asks for first.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._awaited_until = float("-inf")
        self._lost: Version | None = None

    def begin(self) -> None:
        """The next checkpoint that is asked for is lost, and no other."""
        self._awaited_until = self._clock() + PATIENCE_SECONDS

    def covers(self, version: Version) -> bool:
        """Asked of each checkpoint that shall be restored."""
        if self._clock() < self._awaited_until:
            self._awaited_until, self._lost = float("-inf"), version
        return version == self._lost
