"""Plays manager: keeps the managers' process running and tells it who may act in which epoch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

from robustrl.supervisor.keeper import Keeper
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised
from robustrl.supervisor.state import PodState
from robustrl_api.control import Assignment
from robustrl_api.names import Role
from robustrl_api.pod_config import MANAGER_CONFIG_ENV, PodConfig

log = logging.getLogger(__name__)

REFRESH_SECONDS = 1.0


class ManagerRunner:
    """The managers' process of one pod."""

    def __init__(
        self,
        config: PodConfig,
        state: PodState,
        launcher: Launcher,
        memory: PodMemory,
        managers: ManagersClient,
        host: str,
    ) -> None:
        self._config, self._state, self._launcher, self._managers, self._host = config, state, launcher, managers, host
        self._keeper = Keeper(
            "the managers' process", state, memory, self._launch, self._keep_informed, "BadUserFunction"
        )
        self._assignment: Assignment | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def start(self, assignment: Assignment) -> None:
        assert self._config.manager is not None
        self._assignment = assignment
        self._managers.url = f"http://{self._host}:{self._config.manager.port}"
        self._task = self._state.own(asyncio.create_task(self._keeper.run(), name="managers"))

    async def update(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._keeper.end(assignment.end_life)
        self._changed.set()

    async def works(self, seconds: float) -> bool:
        try:
            await self._managers.call("GET", "/v1/progress", seconds=seconds)
        except ManagersAway:
            return False
        return True

    def process(self) -> int | None:
        return self._keeper.process()

    async def leave(self) -> None:
        """Everything the managers have acknowledged is in the ledger already."""

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._keeper.stop()

    async def _launch(self) -> Supervised:
        assert self._config.manager is not None
        config = self._config.manager.model_copy(update={"host": self._host})
        env = {MANAGER_CONFIG_ENV: config.model_dump_json(by_alias=True)}
        return await self._launcher.launch([sys.executable, "-m", "robustrl.managers"], env)

    async def _keep_informed(self) -> None:
        """Fence and roster at every change; progress each second. Repeating is harmless."""
        while True:
            self._changed.clear()
            try:
                await self._inform_or_tell()
                self._state.activity.moved()
            except ManagersAway as error:
                self._state.activity.stands_still(f"the managers do not answer: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._changed.wait()

    async def _inform_or_tell(self) -> None:
        """Who is waited for stands still meanwhile, and not only when a call's own deadline is over."""
        asked = asyncio.create_task(self._inform(), name="inform")
        try:
            while not (await asyncio.wait({asked}, timeout=REFRESH_SECONDS))[0]:
                self._state.activity.stands_still("the managers have not answered yet")
            asked.result()
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _inform(self) -> None:
        assert self._assignment is not None
        rollouts = [peer.pod for peer in self._assignment.peers if peer.role is Role.ROLLOUT]
        try:
            await self._managers.call("PUT", "/v1/roster", {"epoch": self._assignment.epoch, "rollouts": rollouts})
        except ManagersRefused as refusal:
            log.warning("the managers refuse the roster: %s", refusal)
        self._take(await self._managers.call("GET", "/v1/progress"))

    def _take(self, progress: dict[str, object]) -> None:
        self._keeper.up()
        for name in ("tokens_total", "reward_mean"):
            value = progress.get(name)
            if isinstance(value, int | float):
                self._state.metrics[name] = float(value)
        step = progress.get("step")
        if isinstance(step, int):
            self._state.step = step
