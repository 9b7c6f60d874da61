"""Starts a role's processes: from the warm worker where that is possible, cold where it is not."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

from robustrl.supervisor.process import Supervised, start_cold
from robustrl.supervisor.warm import (
    EVERYTHING,
    WarmWorkerClient,
    WarmWorkerGone,
    for_program,
    for_training,
    python_arguments,
)
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig

log = logging.getLogger(__name__)


class Launcher:
    """Owns the pod's warm worker."""

    def __init__(self, config: PodConfig) -> None:
        self._config = config
        self._warm: WarmWorkerClient | None = None

    async def start(self) -> None:
        """Start the warm worker, in pods that can train, and in those of managers."""
        arguments = self._preload()
        if arguments:
            self._warm = WarmWorkerClient(arguments)
            await self._warm.start()

    def _preload(self) -> list[str]:
        """What the warm worker loads; nothing where there is to be none."""
        if self._config.role is Role.MANAGER:
            return for_program("robustrl.managers.program")
        trains_or_may = self._config.role in (Role.TRAINER, Role.ROLLOUT)
        return self._preload_training() if self._config.warm_worker and trains_or_may else []

    def _preload_training(self) -> list[str]:
        modules = list(self._config.warm_modules)
        engine = python_arguments(self._config.engine_command)
        if engine and engine[0] == "-m":
            modules.append(engine[1])
        trainer = python_arguments(self._config.trainer_command)
        script = trainer[0] if trainer and trainer[0] != "-m" else None
        return for_training(modules, script)

    def prepare_standby(self) -> None:
        """Have the warm worker load what a trainer needs. Repeating it is harmless."""
        if self._warm is not None:
            self._warm.load_all()

    async def launch(self, command: Sequence[str], env: Mapping[str, str]) -> Supervised:
        """Start `command` with `env` added to the agent's own environment.

        Raises:
            OSError, ValueError: the command cannot be started.
        """
        full = {**os.environ, **env}
        arguments = python_arguments(command)
        if self._warm is not None and arguments is not None:
            try:
                return await self._warm.fork(arguments, full, _needed(arguments))
            except (WarmWorkerGone, TimeoutError):
                log.warning("the warm worker is gone; starting %s cold and a new warm worker beside it", command[0])
                await self._replace()
        return await start_cold(command, full)

    async def _replace(self) -> None:
        if self._warm is not None:
            await self._warm.close()
        await self.start()

    async def close(self) -> None:
        if self._warm is not None:
            await self._warm.close()


def _needed(arguments: Sequence[str]) -> str:
    """A module run by name needs only itself loaded (and it imports what it needs); a script needs everything."""
    return arguments[1] if arguments[0] == "-m" else EVERYTHING
