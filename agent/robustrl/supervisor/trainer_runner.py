"""Plays trainer: one epoch's worker processes, started together and ended together."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import Any

from robustrl.checkpoint.copier import Copier
from robustrl.checkpoint.fetch import NoCopy, Wanted, obtain
from robustrl.checkpoint.loss import Loss
from robustrl.exit_status import HANDED_OVER_STATUS, PEER_LOST_STATUS
from robustrl.sdk.worker_config import WORKER_CONFIG_ENV, WorkerConfig
from robustrl.supervisor.cpu_time import STOPPED, CpuMeter, process_time
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised
from robustrl.supervisor.publisher import Publisher
from robustrl.supervisor.state import PodState
from robustrl.supervisor.worker_link import Message, WorkerLink
from robustrl_api.control import MESSAGE_CHARACTERS, TRAIN, Assignment, Child, ChildState, Exit
from robustrl_api.pod_config import PodConfig
from robustrl_api.version import Version

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 1.0
PROBE_SAMPLE_SECONDS = 0.25
STARTING_PHASES = frozenset({"Rendezvous", "Restore"})
HAND_OVER_SECONDS = 5.0
ENDED_WELL = frozenset({0, HANDED_OVER_STATUS})
SETTLE_SECONDS = 0.05
"""After the first exit, how long to wait for the exits that explain it."""


def lost_with_the_agent(epoch: int) -> Child:
    """What an agent says of the workers that one before it had started here."""
    message = "the agent was restarted, its workers with it"
    last = Exit(code=-signal.SIGKILL, message=message, agent_restarted=True)
    return Child(state=ChildState.EXITED, epoch=epoch, last_exit=last)


class TrainerRunner:
    """The workers of one epoch. A new epoch is a new runner."""

    def __init__(
        self,
        config: PodConfig,
        state: PodState,
        launcher: Launcher,
        memory: PodMemory,
        copiers: Sequence[Copier],
        publisher: Publisher,
        loss: Loss,
    ) -> None:
        self._config, self._state, self._launcher, self._memory = config, state, launcher, memory
        self._publisher = publisher
        self._copiers, self._loss = copiers, loss
        self._link = WorkerLink(memory.socket, self._handle)
        self._assignment: Assignment | None = None
        self._restored: Version | None = None
        self._workers: list[Supervised] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._over, self._stopped = asyncio.Event(), asyncio.Event()

    async def start(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._set_child(ChildState.STARTING)
        if self._memory.started_epoch() >= assignment.epoch:
            # An epoch is started once: the other ranks will not meet a second time.
            self._state.child = lost_with_the_agent(assignment.epoch)
            self._state.notify()
            self._over.set()
            return
        self._memory.mark_started(assignment.epoch)
        await self._link.start()
        self._tasks.append(self._state.own(asyncio.create_task(self._run(assignment), name="workers")))

    async def update(self, assignment: Assignment) -> None:
        self._assignment = assignment

    async def stop(self) -> None:
        # First of all no more workers are started: a second fault may find some of them still to come.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        ends = await asyncio.gather(*(worker.end() for worker in self._workers))
        for worker, gone in zip(self._workers, ends, strict=True):
            if not gone:
                self._state.complain_of_unkillable("a training process", worker.pid)
        await self._link.close()
        self._state.activity.reset()
        self._over.set()
        self._stopped.set()

    def process(self) -> int | None:
        return next((worker.pid for worker in self._workers if not worker.ended.done()), None)

    async def leave(self) -> None:
        """The workers end by themselves at their next commit, once the operator has told all trainers to. The pod
        stays until its place is taken, so that it is seen to have handed over and not taken for lost."""
        await self._over.wait()
        last = self._state.child.last_exit
        if last is not None and last.handed_over:
            await self._stopped.wait()

    async def _run(self, assignment: Assignment) -> None:
        try:
            for local_rank in range(self._config.processes_per_pod):
                env = self._environment(assignment, local_rank)
                self._workers.append(await self._launcher.launch(self._config.trainer_command, env))
        except (OSError, ValueError) as error:
            text = f"{' '.join(self._config.trainer_command)} cannot be started: {error}"
            self._set_child(ChildState.EXITED, Exit(code=127, message=text[-MESSAGE_CHARACTERS:]))
            self._over.set()
            return
        watch = asyncio.create_task(self._watch_work(), name="activity")
        try:
            exit = await self._first_failure()
            if exit.handed_over:
                await self._until_copied_once()
            self._set_child(ChildState.EXITED, exit)
        finally:
            watch.cancel()
            self._state.activity.reset()
            self._over.set()

    async def _until_copied_once(self) -> None:
        """Others go on from the last checkpoint as soon as they hear of the end here: by then it is elsewhere too."""
        copies = [asyncio.create_task(copier.settled()) for copier in self._copiers if copier.has_target]
        if not copies:
            return
        try:
            done, _ = await asyncio.wait(copies, timeout=HAND_OVER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
        if not done:
            log.warning("the last checkpoint could not be copied to anywhere within %.0f s", HAND_OVER_SECONDS)

    async def _watch_work(self) -> None:
        """An idle processor means that something is wrong only while the script says that it trains. Outside of any
        phase it is told apart: there a process may wait for another that prepares the data."""
        meter = CpuMeter(process_time)
        while True:
            shares = meter.shares([worker.pid for worker in self._workers])
            self._state.activity.sleeps(self._all_sleep(shares))
            text = self._standstill(shares)
            if text:
                self._state.activity.stands_still(text)
            else:
                self._state.activity.moved()
            await asyncio.sleep(SAMPLE_SECONDS)

    def _standstill(self, shares: dict[int, float]) -> str:
        for pid, share in shares.items():
            if share == STOPPED:
                return f"training process {pid} is stopped"
            if self._state.activity.phase == TRAIN and share * 1000 < self._config.active_permille:
                return f"training process {pid} used {share:.1%} of a core in phase {TRAIN}"
        return ""

    def _all_sleep(self, shares: dict[int, float]) -> bool:
        idle = (share * 1000 < self._config.active_permille for share in shares.values())
        return self._state.activity.phase == "" and bool(shares) and all(idle)

    async def works(self, seconds: float) -> bool:
        """Whether the workers do anything within `seconds`: a phase ends, or every process uses the processor, or one
        where nothing is known of their work."""
        meter, phase = CpuMeter(process_time), self._state.activity.phase
        pids = [worker.pid for worker in self._workers]
        meter.shares(pids)
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(min(seconds, PROBE_SAMPLE_SECONDS))
            shares = meter.shares(pids)
            if self._state.activity.phase != phase or not (self._standstill(shares) or self._all_sleep(shares)):
                return True
        return False

    async def _first_failure(self) -> Exit:
        """The exit that ends the epoch here: all well, or the first that went wrong."""
        codes: set[int] = set()
        waiting = {asyncio.create_task(worker.wait()): worker for worker in self._workers}
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            # In the order of ranks, so that the same exits always tell the same.
            ended = [(task.result(), waiting.pop(task)) for task in list(waiting) if task in done]
            codes |= {code for code, _ in ended}
            failed = [(code, worker) for code, worker in ended if code not in ENDED_WELL]
            if failed:
                return await self._explain(failed, waiting)
        return Exit(code=max(codes), handed_over=HANDED_OVER_STATUS in codes)

    async def _explain(
        self, failed: list[tuple[int, Supervised]], waiting: dict[asyncio.Task[int], Supervised]
    ) -> Exit:
        """Prefer an exit that is a fault of its own to one that only followed from it, then end the rest."""
        if waiting and all(code == PEER_LOST_STATUS for code, _ in failed):
            done, _ = await asyncio.wait(waiting, timeout=SETTLE_SECONDS)
            ended = [(task.result(), waiting[task]) for task in waiting if task in done]
            failed += [(code, worker) for code, worker in ended if code not in ENDED_WELL]
        for worker in waiting.values():
            worker.kill()
        code, worker = min(failed, key=lambda item: item[0] == PEER_LOST_STATUS)
        return Exit(code=code, peer_lost=code == PEER_LOST_STATUS, message=worker.last_words())

    def _set_child(self, state: ChildState, exit: Exit | None = None) -> None:
        assert self._assignment is not None
        self._state.child = Child(state=state, epoch=self._assignment.epoch, last_exit=exit)
        self._state.notify()

    def _environment(self, assignment: Assignment, local_rank: int) -> dict[str, str]:
        host, _, port = assignment.rendezvous.rpartition(":")
        rank = assignment.rank * self._config.processes_per_pod + local_rank
        worker = WorkerConfig(
            job=self._config.job,
            pod=self._state.pod,
            epoch=assignment.epoch,
            rank=rank,
            world_size=assignment.world_size,
            local_rank=local_rank,
            rendezvous=assignment.rendezvous,
            agent_socket=str(self._memory.socket),
            memory_dir=str(self._memory.root),
            steps=self._config.steps,
            seed=self._config.seed,
            phase_lease_seconds=assignment.phase_lease_seconds,
        )
        # The names torchrun uses, so that scripts and libraries that read them work unchanged.
        return {
            WORKER_CONFIG_ENV: worker.model_dump_json(),
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(assignment.world_size),
            "LOCAL_WORLD_SIZE": str(self._config.processes_per_pod),
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "TORCHELASTIC_RESTART_COUNT": str(assignment.epoch),
        }

    async def _handle(self, message: Message) -> Message | None:
        operation = message["op"]
        if operation == "phase":
            self._enter(str(message["phase"]))
        elif operation == "committed":
            self._committed(Version(message["epoch"], message["step"]))
        elif operation == "publish":
            self._publisher.begin(Version(message["epoch"], message["step"]), str(message["path"]))
        elif operation == "hand_over":
            return {"wanted": self._assignment is not None and self._assignment.hand_over}
        elif operation == "manager":
            return {"url": self._assignment.manager if self._assignment else ""}
        elif operation == "restore":
            return await self._restore(message)
        return None

    def _enter(self, phase: str) -> None:
        """The first phase after the restore means that the workers are at work."""
        self._state.activity.enter(phase)
        if phase and phase not in STARTING_PHASES and self._state.child.state is ChildState.STARTING:
            self._set_child(ChildState.RUNNING)
            self._copy_again()

    def _copy_again(self) -> None:
        """The copies that others had of what was restored may have gone with them. Made now, they are in nobody's way:
        the machines and the network between them have been busy with bringing the trainers back."""
        if self._restored is not None:
            self._copy(self._restored)

    def _committed(self, version: Version) -> None:
        if version.step != self._state.step:
            # The first of the pod's workers to say so.
            self._state.step = version.step
            self._state.activity.committed()
        self._copy(version)
        self._state.notify()

    def _copy(self, version: Version) -> None:
        for copier in self._copiers:
            copier.committed(version)

    async def _restore(self, message: Message) -> dict[str, Any]:
        assert self._assignment is not None
        version = Version(message["epoch"], message["step"])
        if self._loss.covers(version):
            return {"error": f"no good copy of checkpoint {version}, on purpose"}
        wanted = Wanted(version, frozenset(message["roots"]), message["rank"])
        try:
            found = await obtain(
                wanted,
                self._memory.checkpoints,
                self._memory.storage,
                [peer for peer in self._assignment.peers if peer.pod != self._state.pod],
                self._assignment.keeper,
            )
        except NoCopy as error:
            return {"error": str(error)}
        log.info("restoring %s from %s", version, f"{found.place} {found.whose}".strip())
        count = f"restores_from_{found.place}_total"
        self._state.metrics[count] = self._state.metrics.get(count, 0.0) + 1
        self._restored, self._state.step = version, version.step
        return {"path": str(found.path)}
