"""Plays rollout: keeps the engine running, its weights current, and the managers informed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random

import aiohttp

from robustrl.engines.adapter import EngineAdapter, EngineError
from robustrl.exit_status import BAD_INPUT_STATUS
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised
from robustrl.supervisor.publisher import Publisher
from robustrl.supervisor.state import PodState
from robustrl.supervisor.weight_follower import ReplicaState, WeightFollower
from robustrl_api.control import Assignment, Child, ChildState, Complaint, Exit
from robustrl_api.pod_config import PodConfig

log = logging.getLogger(__name__)

REGISTER_SECONDS = 1.0
READY_POLL_SECONDS = 0.02
STABLE_SECONDS = 30.0
MAX_RESTART_SECONDS = 10.0


class RolloutRunner:
    """The engine of one pod, restarted in place for as long as the pod plays rollout."""

    def __init__(
        self,
        config: PodConfig,
        state: PodState,
        launcher: Launcher,
        memory: PodMemory,
        managers: ManagersClient,
        publisher: Publisher,
        host: str,
    ) -> None:
        self._config, self._state, self._launcher = config, state, launcher
        self._managers, self._publisher = managers, publisher
        self._host = host
        self._url = f"http://{host}:{config.engine_port}"
        self._follower = WeightFollower(managers, publisher, memory.weights, state.pod)
        self._session = aiohttp.ClientSession()
        self._engine: Supervised | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._restarts = 0

    async def start(self, assignment: Assignment) -> None:
        self._tasks = [
            asyncio.create_task(self._keep_running(), name="engine"),
            asyncio.create_task(self._keep_registered(), name="register"),
        ]

    async def update(self, assignment: Assignment) -> None:
        self._follower.changed.set()

    async def stop(self, *, leaving: bool = False) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._engine is not None:
            self._engine.kill()
            await self._engine.wait()
        self._follower.close()
        await self._session.close()
        self._state.version, self._state.admitted = "", False
        # The managers hear from the roster as well; this only spares the requests in flight a timeout.
        with contextlib.suppress(ManagersAway, ManagersRefused):
            await self._managers.call("DELETE", f"/v1/engines/{self._state.pod}", seconds=0.5)

    async def _keep_running(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            exit = await self._one_life()
            lived = asyncio.get_running_loop().time() - began
            self._restarts = 1 if lived > STABLE_SECONDS else self._restarts + 1
            self._follower.engine_lost()
            if exit.code == BAD_INPUT_STATUS:
                self._state.complaint = Complaint(reason="BadEngine", message=exit.message[-3900:])
            self._set_child(ChildState.EXITED, exit)
            log.warning("the engine exited with status %d after %.1f s", exit.code, lived)
            # The first restart is immediate: most exits do not happen twice.
            if self._restarts > 1:
                await asyncio.sleep(min(MAX_RESTART_SECONDS, 0.2 * 2**self._restarts) * random.uniform(0.5, 1.0))

    async def _one_life(self) -> Exit:
        """Run one engine process to its end."""
        self._set_child(ChildState.STARTING, self._state.child.last_exit)
        command = [argument.replace("$POD_IP", self._host) for argument in self._config.engine_command]
        try:
            engine = await self._launcher.launch(command, {})
        except OSError as error:
            return Exit(code=127, message=f"{' '.join(command)} cannot be started: {error}")
        self._engine = engine
        service = asyncio.create_task(self._serve(), name="engine-service")
        try:
            code = await engine.wait()
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)
        return Exit(code=code, message=engine.last_words())

    async def _serve(self) -> None:
        """What there is to do for an engine while it lives."""
        adapter = EngineAdapter(self._url, self._session)
        while not await adapter.ready():  # noqa: ASYNC110 - another process's readiness has no event to await
            await asyncio.sleep(READY_POLL_SECONDS)
        self._set_child(ChildState.RUNNING, self._state.child.last_exit)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.run(adapter))
            group.create_task(self._watch_counters(adapter))

    async def _watch_counters(self, adapter: EngineAdapter) -> None:
        while True:
            with contextlib.suppress(EngineError):
                counters = await adapter.counters()
                self._state.metrics["generation_tokens_total"] = counters.generation_tokens_total
                self._state.metrics["running_requests"] = counters.running
            await asyncio.sleep(REGISTER_SECONDS)

    async def _keep_registered(self) -> None:
        """Tell the managers about the engine at every change, and each second so that they know it lives."""
        while True:
            self._follower.changed.clear()
            with contextlib.suppress(ManagersAway, ManagersRefused):
                await self._register()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REGISTER_SECONDS):
                    await self._follower.changed.wait()

    async def _register(self) -> None:
        follower = self._follower
        holder = self._publisher.address if follower.version else None
        answer = await self._managers.call(
            "PUT",
            f"/v1/engines/{self._state.pod}",
            {
                "uid": f"{self._state.boot}-{self._restarts}",
                "url": self._url,
                "version": follower.version,
                "state": follower.state,
                "holder": str(holder) if holder else None,
            },
        )
        was = (self._state.version, self._state.admitted)
        self._state.version = follower.version
        self._state.admitted = bool(answer["admitted"]) and follower.state is not ReplicaState.STARTING
        if was[1] != self._state.admitted:
            self._state.notify()
        if self._state.admitted and was != (self._state.version, True):
            self._launcher.prepare_standby()

    def _set_child(self, state: ChildState, exit: Exit | None) -> None:
        self._state.child = Child(state=state, restarts=self._restarts, last_exit=exit)
        self._state.notify()
