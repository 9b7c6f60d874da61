"""How a pod's work goes on, measured where it happens: phases and how long they last, work that stands still.

The operator judges by these numbers. They are durations by this pod's own monotonic clock, so nothing depends on two
machines' clocks being alike, and a new operator needs no time to learn them.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable

from robustrl_api.control import IDLE, PHASE_CHARACTERS, TRAIN, Activity

Clock = Callable[[], float]
KNOWN_AFTER = 3
"""A phase that has ended so many times is known well enough to expect the next one to be alike."""
REMEMBERED = 50
KINDS, TEXT_CHARACTERS = 31, 500
"""What a report has room for, besides standstills. A script may name its phases as it likes, even each differently."""


class History:
    """The last durations of each kind of thing, in seconds."""

    def __init__(self) -> None:
        self._durations: dict[str, collections.deque[float]] = {}

    def add(self, name: str, seconds: float) -> None:
        if name in self._durations or len(self._durations) < KINDS:
            self._durations.setdefault(name, collections.deque(maxlen=REMEMBERED)).append(seconds)

    def longest(self) -> dict[str, float]:
        """Of everything that has happened often enough to be known."""
        return {name: max(seen) for name, seen in self._durations.items() if len(seen) >= KNOWN_AFTER}


class ActivityWatch:
    """The current phase and the work in it.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._phases, self._standstills = History(), History()
        """How long phases last, and the longest standstill in each."""
        self._phase, self._phase_since = "", clock()
        self._moved_at, self._idle_text = clock(), ""
        self._longest_idle = 0.0
        self._trained = 0
        self._asleep_since: float | None = None

    @property
    def phase(self) -> str:
        return self._phase

    def enter(self, phase: str, *, moves: bool = True) -> None:
        """A phase begins, and the one before it has ended well.

        Args:
            moves: whether the work starts anew with it; not where the phase is the agent's own, and the work is
                another process's.
        """
        phase = phase[:PHASE_CHARACTERS]
        if phase == self._phase:
            return
        now = self._clock()
        if self._phase:
            self._phases.add(self._phase, now - self._phase_since)
        if moves:
            self.moved()
        self._remember_standstill()
        self._phase, self._phase_since, self._asleep_since = phase, now, None
        self._trained += phase == TRAIN

    def committed(self) -> None:
        """A step has ended, and with it what is counted in each."""
        self._trained = 0

    def moved(self) -> None:
        """The work went on just now, or there is none to do."""
        now = self._clock()
        self._longest_idle = max(self._longest_idle, now - self._moved_at)
        self._moved_at, self._idle_text = now, ""

    def stands_still(self, text: str) -> None:
        """There is work, and it has not gone on since it last did."""
        self._idle_text = text[:TEXT_CHARACTERS]

    def sleeps(self, asleep: bool) -> None:
        """Whether the processes sleep while nothing is known of what they do."""
        if not asleep:
            self._asleep_since = None
        elif self._asleep_since is None:
            self._asleep_since = self._clock()

    def reset(self) -> None:
        """The process is another one now. What phases usually take is remembered."""
        self._remember_standstill()
        self._phase, self._phase_since, self._trained = "", self._clock(), 0
        self._moved_at, self._idle_text = self._clock(), ""
        self._asleep_since = None

    def _remember_standstill(self) -> None:
        """One for each phase: work that goes on tells its agent so every second, and would soon drive out the rest."""
        if self._phase:
            self._standstills.add(self._phase, self._longest_idle)
        self._longest_idle = 0.0

    def _shown(self) -> dict[str, float]:
        standstills = self._standstills.longest().values()
        return self._phases.longest() | ({IDLE: max(standstills)} if standstills else {})

    def report(self) -> Activity:
        now = self._clock()
        return Activity(
            phase_seconds=now - self._phase_since,
            idle_seconds=now - self._moved_at if self._idle_text else 0.0,
            idle_text=self._idle_text,
            asleep_seconds=now - self._asleep_since if self._asleep_since is not None else 0.0,
            trained=self._trained,
            shown=self._shown(),
        )
