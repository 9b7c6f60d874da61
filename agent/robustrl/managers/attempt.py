"""One run of the user's rollout function, and whose fault it is that it came to no end.

The function may catch, wrap or go on after what `generate` raises, and it may raise the same kinds of errors by itself,
as one that works with SQLite does. So what the engines or the ledger did not give is noted where they were asked.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

from robustrl.managers import groups
from robustrl.managers.engine_client import EngineAnswer, TurnRequest
from robustrl.managers.groups import SampleId, Turn
from robustrl.managers.ledger import Ledger
from robustrl.managers.rollout_manager import NoEngine, RolloutManager


class LedgerFailed(Exception):
    """A finished turn could not be saved: the ledger's trouble."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(str(error))
        self.error = error


class EpisodeTooLong(Exception):
    """The function needs more than the time for an episode, whatever the engines do."""


class Attempt:
    """What an episode asks the engines and the ledger for.

    Args:
        seconds: for the whole episode.
        turn_seconds: the longest that an engine may take for one turn.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        sample: SampleId,
        rollouts: RolloutManager,
        ledger: Ledger,
        seconds: float,
        turn_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._sample, self._rollouts, self._ledger, self._clock = sample, rollouts, ledger, clock
        self._seconds, self._turn_seconds = seconds, turn_seconds
        self._began, self._asked = clock(), 0.0
        self._trouble: NoEngine | LedgerFailed | None = None
        # The user's own waiting is bounded too, a little later, so that a missing engine is seen as just that.
        self.limit = asyncio.timeout(seconds + 1.0)

    async def generate(self, request: TurnRequest) -> EngineAnswer:
        """A turn from whichever engine can give it."""
        began = self._clock()
        try:
            return await self._rollouts.generate(request, self._began + self._seconds)
        except NoEngine as missing:
            self._trouble = missing
            raise
        finally:
            self._asked += self._clock() - began

    async def save(self, number: int, context: str, turn: Turn) -> None:
        """Keep a finished turn."""
        try:
            await self._ledger.run(lambda db: groups.save_turn(db, self._sample, number, context, turn))
        except sqlite3.Error as error:
            self._trouble = LedgerFailed(error)
            raise

    def trouble(self) -> NoEngine | LedgerFailed | EpisodeTooLong | None:
        """What kept it from its end; None where that was the function's own doing, or nothing did."""
        own = self._clock() - self._began - self._asked
        # Else it would be run again and again, and find that no engine was in time for ever.
        hopeless = isinstance(self._trouble, NoEngine) and own > self._longest_own()
        if hopeless or (self._trouble is None and self.limit.expired()):
            return EpisodeTooLong(
                f"the episode took longer than episodeTimeoutSeconds ({self._seconds:g} s), {own:.1f} s of it outside "
                "of generate"
            )
        return self._trouble

    def _longest_own(self) -> float:
        """Seconds of its own that leave a function time for a turn."""
        return max(self._seconds - self._turn_seconds, self._seconds / 2)
