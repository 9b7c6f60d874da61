"""For how long something has been idle, from samples. A gap between samples is not idleness: nobody looked."""

from __future__ import annotations

from dataclasses import dataclass

MAX_GAP_SECONDS = 60.0
"""Samples further apart than this do not belong together. A scrape that timed out leaves a gap well below it."""


@dataclass
class IdleTimer:
    """Times are of one monotonic clock, in seconds."""

    since: float | None = None
    sampled: float | None = None

    def idle(self, now: float) -> None:
        """It is idle now, and counts as idle since the first of an unbroken row of such samples."""
        if self.since is None or self.sampled is None or now - self.sampled > MAX_GAP_SECONDS:
            self.since = now
        self.sampled = now

    def active(self, now: float) -> None:
        """It is not idle now, or nobody can tell."""
        self.since, self.sampled = None, now

    def seconds(self, now: float) -> float:
        """Zero where it is not idle, and where the last sample is too old to say."""
        if self.since is None or self.sampled is None or now - self.sampled > MAX_GAP_SECONDS:
            return 0.0
        return self.sampled - self.since
