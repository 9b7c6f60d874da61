"""The agent workers: so many episodes at a time of the user's rollout function.

The user's code runs on the event loop; it must await, not block. Its errors are its own: an episode that
raises is run again from its saved turns, three times, and then its group is given up. An episode that found
no engine in time is no error of the user's: it is run again as often as it takes, unless its own code left no
time for a turn.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from robustrl.managers import groups
from robustrl.managers.attempt import Attempt, LedgerFailed
from robustrl.managers.config import ConfigError, ManagerConfig
from robustrl.managers.episode import Episode
from robustrl.managers.groups import SampleId, SavedTurn, Trajectory
from robustrl.managers.ledger import Ledger
from robustrl.managers.request_manager import RequestManager
from robustrl.managers.rollout_manager import NoEngine, RolloutManager

log = logging.getLogger(__name__)

Prompt = Mapping[str, Any]

_ATTEMPTS = 3
_RETRY_SECONDS = 0.2


@dataclass(frozen=True)
class UserFunctions:
    """The user's two functions. A prompt is a mapping with at least ``tokens``."""

    prompts: Callable[[int], Prompt]
    rollout: Callable[[Prompt, Episode], Awaitable[float]]


def load_functions(config: ManagerConfig) -> UserFunctions:
    """Import the user's functions.

    Raises:
        ConfigError: naming the reference that does not lead to a function, and why.
    """
    rollout = _import(config.rollout)
    if not inspect.iscoroutinefunction(rollout):
        raise ConfigError(f"{config.rollout}: must be an async function (prompt, episode) -> reward")
    return UserFunctions(_import(config.prompts), rollout)


def _import(reference: str) -> Callable[..., Any]:
    module, _, name = reference.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the user's module does while it is imported
        raise ConfigError(f"{reference}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{reference}: is not callable")
    return function


class AgentWorkers:
    """``config.concurrency`` workers, each with one episode at a time."""

    def __init__(
        self,
        config: ManagerConfig,
        functions: UserFunctions,
        ledger: Ledger,
        requests: RequestManager,
        rollouts: RolloutManager,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._functions = functions
        self._ledger = ledger
        self._requests = requests
        self._rollouts = rollouts
        self._clock = clock
        self.episodes_running = 0

    async def run(self) -> None:
        """Work until cancelled; an error of the managers themselves ends all workers and is raised."""
        if self._config.replay:
            await asyncio.Event().wait()  # everything that is to be trained on has been generated
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._config.concurrency):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            sample = await self._requests.next_sample()
            self.episodes_running += 1
            try:
                await self._finish(sample)
            finally:
                self.episodes_running -= 1

    async def _finish(self, sample: SampleId) -> None:
        failures = 0
        saved: list[SavedTurn] = await self._saved_turns(sample) if self._requests.is_resumed(sample) else []
        while True:
            try:
                trajectory = await self._episode(sample, saved)
            except LedgerFailed as failed:
                raise failed.error from None  # not the rollout's fault: the managers end and start again
            except NoEngine as error:
                log.info("episode %s waits for an engine: %s", sample, error)
            except (Exception, asyncio.CancelledError, SystemExit) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                failures += 1
                log.warning("episode %s raised (%d of %d)", sample, failures, _ATTEMPTS, exc_info=True)
                if failures >= _ATTEMPTS:
                    await self._requests.fail(sample, f"rollout of {sample}: {_describe(error)}")
                    await asyncio.sleep(self._requests.pause_seconds())
                    return
            else:
                await self._requests.finish(trajectory)
                return
            await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.5, 1.5))
            saved = await self._saved_turns(sample)

    async def _saved_turns(self, sample: SampleId) -> list[SavedTurn]:
        return await self._ledger.run(lambda db: groups.saved_turns(db, sample))

    async def _episode(self, sample: SampleId, saved: list[SavedTurn]) -> Trajectory:
        prompt = self._functions.prompts(sample.prompt_index)
        attempt = self._attempt(sample)
        episode = Episode(
            sample,
            _tokens(prompt),
            seed=self._config.seed,
            saved=saved,
            generate=attempt.generate,
            save=attempt.save,
        )
        try:
            async with attempt.limit:
                reward = float(await self._functions.rollout(prompt, episode))
        except Exception as error:
            if (trouble := attempt.trouble()) is not None:
                raise trouble from error
            raise
        if (trouble := attempt.trouble()) is not None:
            raise trouble  # the function went on without a turn: what it returned is no reward
        if not math.isfinite(reward):
            raise ValueError(f"the reward is {reward}")
        return episode.trajectory(reward)

    def _attempt(self, sample: SampleId) -> Attempt:
        config = self._config
        seconds, turn_seconds = config.episode_timeout_seconds, config.turn_timeout_seconds
        return Attempt(sample, self._rollouts, self._ledger, seconds, turn_seconds, self._clock)


def _is_cancelled() -> bool:
    """Whether this worker is to end. Else it was something that the user's function waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _tokens(prompt: Any) -> list[int]:
    if not isinstance(prompt, Mapping) or "tokens" not in prompt:
        raise TypeError(f"a prompt must be a mapping with 'tokens', not {prompt!r:.200}")
    return list(prompt["tokens"])


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
