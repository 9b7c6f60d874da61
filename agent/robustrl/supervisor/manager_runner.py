"""Plays manager: keeps the managers' process running and tells it who may act in which epoch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys

from robustrl.exit_status import BAD_INPUT_STATUS
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from robustrl.supervisor.process import Supervised
from robustrl.supervisor.state import PodState
from robustrl_api.control import Assignment, Child, ChildState, Complaint, Exit
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig

log = logging.getLogger(__name__)

MANAGER_CONFIG_ENV = "ROBUSTRL_MANAGER_CONFIG"
REFRESH_SECONDS = 1.0
STABLE_SECONDS = 30.0
MAX_RESTART_SECONDS = 10.0


class ManagerRunner:
    """The managers' process of one pod."""

    def __init__(
        self, config: PodConfig, state: PodState, launcher: Launcher, managers: ManagersClient, host: str
    ) -> None:
        self._config, self._state, self._launcher, self._managers, self._host = config, state, launcher, managers, host
        self._assignment: Assignment | None = None
        self._process: Supervised | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._restarts = 0

    async def start(self, assignment: Assignment) -> None:
        assert self._config.manager is not None
        self._assignment = assignment
        self._managers.url = f"http://{self._host}:{self._config.manager.port}"
        self._tasks = [
            asyncio.create_task(self._keep_running(), name="managers"),
            asyncio.create_task(self._keep_informed(), name="roster"),
        ]

    async def update(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._changed.set()

    async def stop(self, *, leaving: bool = False) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def _keep_running(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            exit = await self._one_life()
            lived = asyncio.get_running_loop().time() - began
            if exit.code == BAD_INPUT_STATUS:
                self._state.complaint = Complaint(reason="BadUserFunction", message=exit.message[-3900:])
            self._restarts = 1 if lived > STABLE_SECONDS else self._restarts + 1
            self._set_child(ChildState.EXITED, exit)
            if self._restarts > 1:
                await asyncio.sleep(min(MAX_RESTART_SECONDS, 0.2 * 2**self._restarts) * random.uniform(0.5, 1.0))

    async def _one_life(self) -> Exit:
        assert self._config.manager is not None
        config = self._config.manager.model_copy(update={"host": self._host})
        env = {MANAGER_CONFIG_ENV: config.model_dump_json(by_alias=True)}
        self._set_child(ChildState.STARTING, self._state.child.last_exit)
        try:
            self._process = await self._launcher.launch([sys.executable, "-m", "robustrl.managers"], env)
        except OSError as error:
            return Exit(code=127, message=f"the managers cannot be started: {error}")
        code = await self._process.wait()
        return Exit(code=code, message=self._process.last_words())

    async def _keep_informed(self) -> None:
        """Fence and roster at every change; progress each second. Repeating is harmless."""
        while True:
            self._changed.clear()
            with contextlib.suppress(ManagersAway):
                await self._inform()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._changed.wait()

    async def _inform(self) -> None:
        assert self._assignment is not None
        rollouts = [peer.pod for peer in self._assignment.peers if peer.role is Role.ROLLOUT]
        try:
            await self._managers.call("PUT", "/v1/roster", {"epoch": self._assignment.epoch, "rollouts": rollouts})
        except ManagersRefused as refusal:
            log.warning("the managers refuse the roster: %s", refusal)
        progress = await self._managers.call("GET", "/v1/progress")
        self._take(progress)

    def _take(self, progress: dict[str, object]) -> None:
        if self._state.child.state is not ChildState.RUNNING:
            self._set_child(ChildState.RUNNING, self._state.child.last_exit)
        for name in ("tokens_total", "reward_mean"):
            value = progress.get(name)
            if isinstance(value, int | float):
                self._state.metrics[name] = float(value)
        step = progress.get("step")
        if isinstance(step, int):
            self._state.step = step

    def _set_child(self, state: ChildState, exit: Exit | None) -> None:
        self._state.child = Child(state=state, restarts=self._restarts, last_exit=exit)
        self._state.notify()
