"""Sources that sent damaged bytes. Two strikes, and nothing is taken from them any more."""

from __future__ import annotations


class Strikes:
    """Kept across pulls: memory that went bad once goes on being bad.

    Args:
        limit: strikes that make a quarantine.
        forgiven_after_seconds: after which they are forgotten; the process at that address may be another one.
    """

    def __init__(self, limit: int = 2, forgiven_after_seconds: float = 600.0) -> None:
        self._limit, self._forgiven_after = limit, forgiven_after_seconds
        self._times: dict[str, list[float]] = {}

    def strike(self, now: float, name: str) -> bool:
        """Count one; whether the source is quarantined by now."""
        self._times.setdefault(name, []).append(now)
        return self.quarantined(now, name)

    def quarantined(self, now: float, name: str) -> bool:
        times = self._times.get(name)
        if times is None:
            return False
        if now - times[-1] > self._forgiven_after:
            del self._times[name]
            return False
        return len(times) >= self._limit

    def total(self) -> int:
        return sum(len(times) for times in self._times.values())

    def names(self, now: float) -> frozenset[str]:
        """Who is quarantined."""
        return frozenset(name for name in list(self._times) if self.quarantined(now, name))
