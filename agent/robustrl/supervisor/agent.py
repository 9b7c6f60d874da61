"""The agent: plays the role that its assignment says, and switches roles in place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import Any

from robustrl.checkpoint.archive import Archive
from robustrl.checkpoint.keeping import Keeping
from robustrl.checkpoint.loss import Loss
from robustrl.checkpoint.pushing import Pusher
from robustrl.supervisor.activity import ActivityWatch
from robustrl.supervisor.control_client import ControlClient
from robustrl.supervisor.harm import Striker
from robustrl.supervisor.http import AgentEndpoint
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.manager_runner import ManagerRunner
from robustrl.supervisor.managers_client import ManagersClient
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.orphans import reap_orphans
from robustrl.supervisor.process import adopt_orphans
from robustrl.supervisor.publisher import Publisher
from robustrl.supervisor.rollout_runner import RolloutRunner
from robustrl.supervisor.runner import Runner
from robustrl.supervisor.state import PodState
from robustrl.supervisor.trainer_runner import TrainerRunner, lost_with_the_agent
from robustrl_api.control import LEAVE_MARGIN_SECONDS, Assignment, Child, Complaint
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig
from robustrl_api.version import Version

log = logging.getLogger(__name__)


class Agent:
    """Everything in one pod.

    Args:
        pod: the pod's name.
        host: the pod's address, on which everything in it listens.
    """

    def __init__(self, config: PodConfig, pod: str, host: str) -> None:
        self._config, self._host = config, host
        self._state = PodState(pod, config.role)
        self._memory = PodMemory(config)
        self._archive = Archive(self._memory.checkpoints, self._memory.storage, self._note_unstored)
        self._pusher = Pusher(self._memory.checkpoints, pod, self._note_copied)
        self._keeping = Keeping(self._memory.checkpoints)
        self._loss = Loss()
        self._managers = ManagersClient()
        self._launcher = Launcher(config)
        self._publisher = Publisher(self._managers, host, config.weight_port, config.chunk_bytes)
        self._endpoint = AgentEndpoint(
            self._state, self._memory.checkpoints, self._keeping, host, config.agent_port, self._works
        )
        self._control = ControlClient(config, self._state, self._apply)
        self._striker = Striker(
            self._state,
            self._memory,
            lambda: self._runner.process() if self._runner else None,
            self._loss,
            self._archive.refusal if self._archive.has_target else None,
        )
        self._playing: tuple[Role, int] | None = None
        self._runner: Runner | None = None

    async def run(self) -> None:
        """Serve until SIGTERM, or until a part of the agent itself fails."""
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await self._start()
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._control.run(), name="control"),
            asyncio.create_task(stopping.wait(), name="stop"),
            asyncio.create_task(self._state.broken.wait(), name="broken"),
            asyncio.create_task(self._archive.run(), name="archive"),
            asyncio.create_task(self._pusher.run(), name="copies"),
            asyncio.create_task(reap_orphans(), name="orphans"),
        ]
        beside: list[asyncio.Task[Any]] = []
        if self._config.role is not Role.MANAGER:
            # UCX may hang as it comes up, and the pod is to be told to end all the same.
            beside.append(self._state.own(asyncio.create_task(self._publisher.start(), name="weights")))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._state.broken.is_set():
                raise RuntimeError("a part of the agent has failed")
            await self._take_leave()
        finally:
            await self._close([*tasks, *beside])

    async def _start(self) -> None:
        adopt_orphans()
        problem = self._memory.prepare()
        if problem:
            log.error("%s", problem)
            self._state.complaint = Complaint(reason="VolumeUnusable", message=problem)
        self._note_unstored(self._memory.prepare_storage())
        self._tell_of_lost_workers()
        await self._endpoint.start()
        await self._launcher.start()
        if self._config.role is Role.TRAINER:
            self._launcher.prepare_standby()

    def _tell_of_lost_workers(self) -> None:
        """With the first report: a rank that lost this peer would be taken for the one at fault meanwhile."""
        if epoch := self._memory.started_epoch():
            self._state.child = lost_with_the_agent(epoch)

    def _note_unstored(self, problem: str) -> None:
        """Storage cannot be written, or can again."""
        if problem != self._state.unstored:
            log.warning("%s", problem or "checkpoints reach storage again")
            self._state.unstored = problem
            self._state.notify()

    async def _take_leave(self) -> None:
        """Hand over what is under way, within the grace period; the control channel is up meanwhile."""
        self._state.leaving = True
        self._state.notify()
        if self._runner is None:
            return
        try:
            async with asyncio.timeout(max(0.0, self._config.grace_seconds - LEAVE_MARGIN_SECONDS)):
                await self._runner.leave()
        except TimeoutError:
            log.warning("the grace period of %d s was too short to hand over", self._config.grace_seconds)

    async def _close(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The last first. Each is closed whatever becomes of the others: a file in memory may find no room any more.
        async with contextlib.AsyncExitStack() as parts:
            for close in (
                self._managers.close,
                self._publisher.close,
                self._endpoint.close,
                self._launcher.close,
                # What only this pod holds is handed over, whatever role it plays by now.
                self._archive.flush,
                *([self._runner.stop] if self._runner is not None else []),
                self._striker.close,
            ):
                parts.push_async_callback(close)

    async def _apply(self, assignment: Assignment) -> None:
        """Become what the assignment says. The same role in the same epoch goes on undisturbed.

        An operator that has been overtaken may still say what was true before; epochs never go back.
        """
        if assignment.epoch < max(self._state.epoch, self._memory.started_epoch()):
            log.warning("an assignment of epoch %d comes too late: epoch %d rules", assignment.epoch, self._state.epoch)
            return
        if self._config.role is not Role.MANAGER:
            self._managers.url = assignment.manager
        self._keeping.assign(assignment.epoch, assignment.peers)
        self._pusher.assign(assignment.keeper_peer, assignment.epoch, self._ranks(assignment))
        wanted = _played(assignment)
        if wanted == self._playing:
            if self._runner is not None:
                await self._runner.update(assignment)
        else:
            await self._switch(wanted, assignment)
        self._state.epoch = assignment.epoch
        self._striker.take(assignment.strike)
        self._state.notify()

    async def _switch(self, wanted: tuple[Role, int] | None, assignment: Assignment) -> None:
        log.info("%s -> %s", _name(self._playing), _name(wanted))
        if self._runner is not None:
            await self._runner.stop()
        if assignment.role is not self._state.role:
            # What one role's phases usually take says nothing of another's.
            self._state.activity = ActivityWatch()
        self._runner, self._playing = None, wanted
        self._state.role, self._state.child = assignment.role, Child()
        if wanted is None or self._state.complaint is not None:
            return
        self._runner = self._make(assignment.role)
        await self._runner.start(assignment)

    def _ranks(self, assignment: Assignment) -> range:
        """The processes' ranks in this pod, if it trains."""
        first = assignment.rank * self._config.processes_per_pod
        return range(max(0, first), first + self._config.processes_per_pod)

    def _note_copied(self, version: Version) -> None:
        self._state.metrics["checkpoint_copied_step"] = float(version.step)

    async def _works(self, seconds: float) -> bool:
        """An agent without a process has none that could hang."""
        return self._runner is None or await self._runner.works(seconds)

    def _make(self, role: Role) -> Runner:
        if role is Role.TRAINER:
            return TrainerRunner(
                self._config,
                self._state,
                self._launcher,
                self._memory,
                (self._archive, self._pusher),
                self._publisher,
                self._loss,
            )
        if role is Role.MANAGER:
            return ManagerRunner(self._config, self._state, self._launcher, self._memory, self._managers, self._host)
        return RolloutRunner(
            self._config, self._state, self._launcher, self._memory, self._managers, self._publisher, self._host
        )


def _played(assignment: Assignment) -> tuple[Role, int] | None:
    """What identifies a run of a role: trainers start anew in each epoch, others do not."""
    if not assignment.run or assignment.role not in (Role.TRAINER, Role.ROLLOUT, Role.MANAGER):
        return None
    return assignment.role, assignment.epoch if assignment.role is Role.TRAINER else 0


def _name(playing: tuple[Role, int] | None) -> str:
    if playing is None:
        return "idle"
    role, epoch = playing
    return f"{role} of epoch {epoch}" if role is Role.TRAINER else role.value


def pod_address() -> tuple[str, str]:
    """This pod's name and address, from the environment the operator sets."""
    return os.environ["ROBUSTRL_POD_NAME"], os.environ["ROBUSTRL_POD_IP"]
