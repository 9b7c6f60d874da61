"""The request manager: which sample is worked on next, and what becomes of it.

Back-pressure: the group of prompt ``g`` may start only while ``g < (next step + staleness + 1) * prompts per step``
(and while the job needs it), so nobody generates for a policy that will be too old. A failed group moves the bound
by one: another prompt takes its place. Without staleness the next step's weights must be published too, or its
groups would be drawn with the ones before.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robustrl.managers import batches, groups
from robustrl.managers.config import ManagerConfig
from robustrl.managers.groups import SampleId, Trajectory
from robustrl.managers.ledger import Ledger
from robustrl.managers.pulse import Pulse, within

log = logging.getLogger(__name__)

_FAILED_GROUPS_IN_A_ROW = 8
_PATIENCE_SECONDS = 600.0
"""For so long may all rollouts fail that have worked before: a service that they ask is away, as while its pod is
replaced."""
_PAUSE_SECONDS = (0.1, 10.0)


class RolloutsFail(Exception):
    """So many groups in a row failed that the user's function cannot be right."""


@dataclass(frozen=True)
class Batch:
    """One rank's share of a step's batch."""

    batch: str
    step: int
    trajectories: list[dict[str, Any]]


class RequestManager:
    """Prompts, trajectories and batches over the ledger.

    Args:
        on_hopeless: called with the reason once rollouts fail and fail.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        ledger: Ledger,
        config: ManagerConfig,
        *,
        on_hopeless: Callable[[RolloutsFail], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._config = config
        self._on_hopeless, self._clock = on_hopeless, clock
        self._queue: deque[SampleId] = deque()
        self._resumed: frozenset[SampleId] = frozenset()
        self._starting = asyncio.Lock()
        self._room = Pulse()  # a sample may be waiting, or a group may start
        self._ready = Pulse()  # a group became ready
        self._next_index = 0
        self._failed = 0
        self._have_worked = False
        self._failed_in_a_row = 0
        self._failing_since = 0.0
        self._published_step = 0
        self.next_step = 0
        self.error: str | None = None

    async def load(self) -> None:
        """Take over what the ledger has: unfinished samples go first."""
        unfinished = await self._ledger.run(groups.unfinished)
        self._queue.extend(unfinished)
        self._resumed = frozenset(unfinished)
        counts = await self._ledger.run(groups.counts)
        self._next_index, self._failed = counts.next_index, counts.failed
        states = await self._ledger.run(groups.by_state)
        self._have_worked = any(states[state] for state in ("ready", "leased", "consumed"))
        self.next_step = await self._ledger.run(batches.next_step)
        self.error = await self._ledger.run(groups.last_error)

    def published(self, step: int) -> None:
        """Weights of this step can be drawn with now."""
        self._published_step = step
        self._room.fire()

    def rolled_back(self, step: int) -> None:
        """The steps from this one on are to be trained again."""
        self.next_step = min(self.next_step, step)

    # -- for agent workers -----------------------------------------------------------------------------------

    async def next_sample(self) -> SampleId:
        """The next sample to work on; waits while the trainer has to catch up."""
        while True:
            room = self._room.next()
            async with self._starting:
                if not self._queue and self._may_start():
                    await self._start_group()
                if self._queue:
                    return self._queue.popleft()
            await room.wait()

    def is_resumed(self, sample: SampleId) -> bool:
        """Whether an earlier life of the managers began the sample, and may have saved turns of it."""
        return sample in self._resumed

    async def finish(self, trajectory: Trajectory) -> None:
        if await self._ledger.run(lambda db: groups.finish(db, trajectory)):
            self._failed_in_a_row, self._have_worked = 0, True
            self._ready.fire()

    async def fail(self, sample: SampleId, error: str) -> None:
        """Give the sample's whole group up: a group that lacks a sample has no fair mean."""
        index = sample.prompt_index
        if not await self._ledger.run(lambda db: groups.fail(db, index, error)):
            return
        log.error("group %d failed: %s", index, error)
        self._queue = deque(waiting for waiting in self._queue if waiting.prompt_index != index)
        self.error = error
        self._failed += 1
        self._failing_since = self._failing_since if self._failed_in_a_row else self._clock()
        self._failed_in_a_row += 1
        self._room.fire()
        if self._is_hopeless():
            self._on_hopeless(RolloutsFail(f"{self._failed_in_a_row} groups in a row failed; the last: {error}"))

    def pause_seconds(self) -> float:
        """How long whoever has given a group up waits before the next one: what makes all of them fail would only use
        up prompts."""
        first, longest = _PAUSE_SECONDS
        return min(longest, first * 2.0 ** min(self._failed_in_a_row, 10)) * random.uniform(0.5, 1.0)

    def _is_hopeless(self) -> bool:
        """Whether the user's function cannot be right, or what it needs does not come back."""
        long = self._clock() - self._failing_since >= _PATIENCE_SECONDS
        return self._failed_in_a_row >= _FAILED_GROUPS_IN_A_ROW and (long or not self._have_worked)

    def _may_start(self) -> bool:
        config = self._config
        if config.staleness == 0 and self._published_step < self.next_step:
            return False
        ahead = (self.next_step + config.staleness + 1) * config.prompts_per_step
        return self._next_index < min(ahead, config.steps * config.prompts_per_step) + self._failed

    async def _start_group(self) -> None:
        index, samples = self._next_index, self._config.samples_per_prompt
        await self._ledger.run(lambda db: groups.start(db, index, samples))
        self._next_index += 1
        self._queue.extend(SampleId(index, sample) for sample in range(samples))
        self._room.fire()

    # -- for trainers ----------------------------------------------------------------------------------------

    async def take_batch(self, epoch: int, step: int, rank: int, world_size: int, wait_seconds: float) -> Batch | None:
        """A rank's share of the batch of ``step``; None if it cannot be formed within the wait."""
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            ready = self._ready.next()
            batch = await self._ledger.run(
                lambda db: batches.lease(db, epoch, step, self._config.prompts_per_step), durable=True
            )
            if batch is not None:
                share = await self._ledger.run(lambda db: batches.trajectories(db, step, rank, world_size))
                return Batch(batch, step, share)
            if not await within(ready, deadline - asyncio.get_running_loop().time()):
                return None

    async def commit(
        self, *, epoch: int, step: int, batch: str, digests: dict[str, str], metrics: dict[str, Any], now: float
    ) -> int:
        """Make the step real. Returns the next one."""
        following = await self._ledger.run(
            lambda db: batches.commit(
                db,
                epoch=epoch,
                step=step,
                batch=batch,
                digests=digests,
                metrics=metrics,
                now=now,
                keep_batches=self._config.keep_batches,
            ),
            durable=True,
        )
        self.next_step = max(self.next_step, following)
        self._room.fire()
        return following
