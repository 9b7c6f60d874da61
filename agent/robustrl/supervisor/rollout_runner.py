"""Plays rollout: keeps the engine running, its weights current, and the managers informed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

import aiohttp

from robustrl.engines.adapter import EngineAdapter, EngineError
from robustrl.supervisor.cpu_time import process_time
from robustrl.supervisor.keeper import Keeper
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.proc_stat import descendants
from robustrl.supervisor.process import Supervised
from robustrl.supervisor.publisher import Publisher
from robustrl.supervisor.standstill import StandstillMeter
from robustrl.supervisor.state import PodState
from robustrl.supervisor.weight_follower import ReplicaState, WeightFollower
from robustrl_api.control import Assignment, ChildState
from robustrl_api.pod_config import PodConfig

log = logging.getLogger(__name__)

REGISTER_SECONDS = 1.0
READY_POLL_SECONDS, SLOW_POLL_SECONDS, POLL_SHARE = 0.02, 0.5, 0.01
"""How often an engine that starts is asked whether it is ready: at most so rarely, and else once in that share of the
time that it has taken. One that is asked all the time would use the processor for its answers alone."""
DRAIN_POLL_SECONDS = 0.1
LEAVING = "Leaving"


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
        self._follower = WeightFollower(managers, publisher, memory.weights)
        self._session = aiohttp.ClientSession()
        self._adapter = EngineAdapter(self._url, self._session)
        self._keeper = Keeper("the engine", state, memory, self._launch, self._serve, "BadEngine")
        self._tasks: list[asyncio.Task[None]] = []
        self._standby = False
        self._leaving = False
        self._calls = 0
        """Turns that the managers wait for from this engine."""

    async def start(self, assignment: Assignment) -> None:
        self._standby = assignment.standby
        self._tasks = [
            self._state.own(asyncio.create_task(self._keeper.run(), name="engine")),
            self._state.own(asyncio.create_task(self._keep_registered(), name="register")),
        ]

    async def update(self, assignment: Assignment) -> None:
        self._standby = assignment.standby
        self._keeper.end(assignment.end_life)
        self._follower.changed.set()

    async def works(self, seconds: float) -> bool:
        """Whether it answers; of one that is not up yet, and answers nobody, whether it does anything meanwhile."""
        if self._state.child.state is ChildState.RUNNING:
            return await self._adapter.deep_probe(seconds)
        meter = self._meter()
        meter.all_still(self._processes())
        answers, _ = await asyncio.gather(self._adapter.deep_probe(seconds), asyncio.sleep(seconds))
        engine = self._processes()
        return answers or not (why_stopped(engine) or meter.all_still(engine))

    def process(self) -> int | None:
        return self._keeper.process()

    async def leave(self) -> None:
        """The managers send no more turns to an engine that leaves; those under way are seen out."""
        self._leaving = True
        self._follower.changed.set()
        while self._follower.state is not ReplicaState.STARTING and await self._busy():  # noqa: ASYNC110 - its queue
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def _busy(self) -> bool:
        with contextlib.suppress(EngineError):
            counters = await self._adapter.counters()
            return counters.running + counters.queued > 0
        return False

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keeper.stop()
        self._follower.close()
        await self._session.close()
        self._state.version, self._state.admitted = "", False
        # The managers hear from the roster as well; this only spares the requests in flight a timeout.
        with contextlib.suppress(ManagersAway, ManagersRefused):
            await self._managers.call("DELETE", f"/v1/engines/{self._state.pod}", seconds=0.5)

    async def _launch(self) -> Supervised:
        command = [argument.replace("$POD_IP", self._host) for argument in self._config.engine_command]
        return await self._launcher.launch(command, {})

    async def _serve(self) -> None:
        """What there is to do for an engine while it lives."""
        try:
            await self._until_ready()
            self._keeper.up()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follower.run(self._adapter))
                group.create_task(self._watch_work())
        finally:
            self._follower.engine_lost()

    async def _until_ready(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch_start())
            while not await self._adapter.ready():
                pause = max(READY_POLL_SECONDS, POLL_SHARE * (loop.time() - began))
                await asyncio.sleep(min(SLOW_POLL_SECONDS, pause))
            watch.cancel()

    async def _watch_start(self) -> None:
        """An engine that starts has no work to show yet, and may take long; but what it does can be seen from outside.

        One that is stopped by a signal will not go on by itself; one that sleeps may.
        """
        activity, meter = self._state.activity, self._meter()
        try:
            while True:
                engine = self._processes()
                if stop := why_stopped(engine):
                    activity.stands_still(stop)
                else:
                    activity.moved()
                activity.sleeps(meter.all_still(engine))
                await asyncio.sleep(REGISTER_SECONDS)
        finally:
            activity.moved()
            activity.sleeps(False)

    def _processes(self) -> list[int]:
        """The engine and whoever works behind it."""
        pid = self.process()
        return [] if pid is None else [pid, *descendants(pid)]

    def _meter(self) -> StandstillMeter:
        return StandstillMeter(self._config.active_permille)

    async def _watch_work(self) -> None:
        """An engine that has requests makes tokens; one that is being given weights need not.

        What it says of its requests is asked of the managers as well: a front may go on telling what it heard last.
        """
        tokens = -1
        while True:
            try:
                counters = await self._adapter.counters()
            except EngineError as error:
                self._note(str(error))
            else:
                self._state.metrics["generation_tokens_total"] = counters.generation_tokens_total
                self._state.metrics["running_requests"] = counters.running
                running = max(counters.running, self._calls)
                still = running > 0 and counters.generation_tokens_total == tokens
                self._note(f"no new token while {running} requests run" if still else "")
                tokens = counters.generation_tokens_total
            await asyncio.sleep(REGISTER_SECONDS)

    def _note(self, seen: str) -> None:
        follower = self._follower
        applying = follower.state is ReplicaState.APPLYING
        if standstill := why_still(self.process(), seen, applying=applying, refused=follower.refused):
            self._state.activity.stands_still(standstill)
        else:
            self._state.activity.moved()

    async def _keep_registered(self) -> None:
        """Tell the managers about the engine at every change, and each second so that they know it lives."""
        while True:
            self._follower.changed.clear()
            self._state.activity.enter(self._follower.state, moves=False)
            self._state.metrics.update(self._follower.metrics)
            self._state.metrics["weight_bytes_sent_total"] = self._publisher.bytes_sent
            try:
                await self._register()
            except (ManagersAway, ManagersRefused):
                self._calls = 0  # they begin anew with none
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REGISTER_SECONDS):
                    await self._follower.changed.wait()

    async def _register(self) -> None:
        follower = self._follower
        answer = await self._managers.call(
            "PUT",
            f"/v1/engines/{self._state.pod}",
            {
                "uid": f"{self._state.boot}-{self._keeper.life}",
                "url": self._url,
                "version": follower.version,
                "state": LEAVING if self._leaving else follower.state,
            },
        )
        self._calls = _number((answer or {}).get("running"))
        was = (self._state.version, self._state.admitted)
        self._state.version = follower.version
        self._state.admitted = bool((answer or {}).get("admitted")) and follower.state is not ReplicaState.STARTING
        if was[1] != self._state.admitted:
            self._state.notify()
        if self._standby and self._state.admitted and was != (self._state.version, True):
            self._launcher.prepare_standby()


def why_still(pid: int | None, seen: str, *, applying: bool, refused: bool) -> str:
    """Why an engine's work does not go on; empty where it does, or is not expected to.

    Args:
        pid: of its process, if there is one. What a signal has stopped does not apply weights either.
        seen: what its counters say of a standstill.
        applying: whether new weights are applied. It may stand still meanwhile.
        refused: whether it failed at the last weights it was given, or did not answer. Then trying again is no work,
            and an engine without a request does not show otherwise that it hangs.
    """
    # While weights are applied this is all there is to see, so whoever works behind a front is looked at, too.
    engine = [] if pid is None else [pid, *(descendants(pid) if applying else ())]
    if stop := why_stopped(engine):
        return stop
    if refused:
        return seen or "it does not take new weights"
    return "" if applying else seen


def why_stopped(engine: Iterable[int]) -> str:
    """Which of an engine's processes a signal has stopped; empty where none is."""
    stopped = (pid for pid in engine if (used := process_time(pid)) is not None and used.stopped)
    return next((f"engine process {pid} is stopped" for pid in stopped), "")


def _number(said: object) -> int:
    """What managers of another release, or a stranger at their address, may have left out."""
    return said if isinstance(said, int) else 0
