"""The local body: pods are processes, the status is a file."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from pathlib import Path

from robustrl_api.job import RLJob
from robustrl_api.names import ANNOTATION_INJECT, Role
from robustrl_api.status import RLJobStatus
from robustrl_operator.control.hub import PodIdentity
from robustrl_operator.faults.kind import FREEZE_SECONDS, Means
from robustrl_operator.local.pod_process import GRACE_SECONDS, PodProcess
from robustrl_operator.local.run_folder import RunFolder
from robustrl_operator.plan import Action, CreatePod, DeletePod, Event, HarmMachine, Relabel
from robustrl_operator.pods.config import Surroundings, pod_config
from robustrl_operator.view import NodeView, PodView

log = logging.getLogger(__name__)

GHOST_SECONDS = 2.0
"""How long a pod that was force-deleted runs on after its machine is back."""


class LocalBody:
    """One job's pods on this machine.

    Args:
        folder: where status, logs, ledger and checkpoints go; it survives the run.
        memory: memory-backed folder for the pods' slots; it does not.
        on_change: called when a pod comes, goes or starts again.
        network: first two numbers of the pods' loopback addresses; two jobs at once need two.
        replay: the managers serve the batches that the ledger has, and generate none.
    """

    def __init__(
        self,
        job: RLJob,
        folder: Path,
        memory: Path,
        control_url: str,
        rendezvous_base: int,
        on_change: Callable[[], None],
        *,
        network: str,
        replay: bool = False,
    ) -> None:
        self._job = job
        self._folder, self._memory = RunFolder(folder), memory
        self._network, self._replay = network, replay
        self._control_url = control_url
        self._on_change = on_change
        self._pods: dict[str, PodProcess] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._ghosts: set[PodProcess] = set()
        self._thawing: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self.rendezvous_base = rendezvous_base
        self.events: list[tuple[float, Event]] = []
        self._folder.logs.mkdir(parents=True, exist_ok=True)

    means = frozenset({Means.DELETE, Means.CUT_POWER, Means.FREEZE})

    # What the brain sees.

    def job(self, key: str) -> RLJob | None:
        return self._job

    def pods(self, key: str) -> tuple[PodView, ...]:
        return tuple(pod.view() for pod in self._pods.values())

    def nodes(self) -> dict[str, NodeView]:
        return {f"node-of-{p.name}": NodeView(f"node-of-{p.name}", ready=p.node_alive) for p in self._pods.values()}

    # What the brain does.

    async def write_status(self, job: RLJob, status: RLJobStatus) -> None:
        self._job = job.model_copy(update={"status": status})
        path = self._folder.status
        temporary = path.with_suffix(".tmp")
        temporary.write_text(status.model_dump_json(by_alias=True, indent=2))
        temporary.rename(path)

    async def carry_out(self, job: RLJob, action: Action) -> None:
        if isinstance(action, CreatePod):
            self._create(job, action)
        elif isinstance(action, DeletePod):
            self._delete(action)
        elif isinstance(action, Relabel):
            pod = self._pods.get(action.uid)
            if pod is not None:
                pod.label, pod.epoch = action.role, action.epoch
        elif isinstance(action, HarmMachine) and action.uid in self._pods:
            await self.harm(self._pods[action.uid], action.means)

    async def publish(self, job: RLJob, event: Event) -> None:
        self.events.append((asyncio.get_running_loop().time(), event))
        log.log(logging.WARNING if event.warning else logging.INFO, "%s: %s", event.reason, event.message)

    def _create(self, job: RLJob, action: CreatePod) -> None:
        folder = self._memory / action.name
        around = Surroundings(
            control_url=self._control_url,
            memory_dir=str(folder),
            ledger=str(self._folder.ledger),
            grace_seconds=GRACE_SECONDS,
            storage_dir=str(self._folder.checkpoints),
            replay=self._replay,
        )
        number = next(self._numbers)
        pod = PodProcess(
            name=action.name,
            role=action.role,
            address=f"{self._network}.{number // 250}.{number % 250 + 1}",
            config=pod_config(job, action.role, around),
            folder=folder,
            log=self._folder.logs / f"{action.name}.log",
            on_change=self._on_change,
            attempt=job.status.attempt,
            label=action.role,
        )
        self._pods[pod.uid] = pod
        self._lives[pod.uid] = asyncio.create_task(pod.live(), name=f"pod-{pod.name}")

    def _delete(self, action: DeletePod) -> None:
        pod = self._pods.get(action.uid)
        if pod is not None and not pod.deleting:
            pod.deleting = True
            task = asyncio.create_task(self._end(pod, force=action.force), name=f"delete-{pod.name}")
            self._lives[f"delete-{pod.uid}"] = task

    async def _end(self, pod: PodProcess, *, force: bool) -> None:
        if force and pod.frozen:
            # Its machine cannot be told: the pod is off the books at once and ends when its machine is back.
            self._pods.pop(pod.uid, None)
            self._on_change()
            await self._end_afterwards(pod)
            return
        await pod.delete(force=force)
        self._pods.pop(pod.uid, None)
        self._on_change()

    async def _end_afterwards(self, pod: PodProcess) -> None:
        """What a kubelet does with pods that it finds gone; until then they run on."""
        self._ghosts.add(pod)
        while pod.frozen:  # noqa: ASYNC110 - a machine that comes back tells nobody
            await asyncio.sleep(0.1)
        await asyncio.sleep(GHOST_SECONDS)
        await pod.delete(force=True)
        self._ghosts.discard(pod)

    # What people and tests do.

    async def identify(self, token: str) -> PodIdentity | None:
        """The authenticator: each pod has a token of its own, void once the pod is gone."""
        for pod in self._pods.values():
            if pod.token == token:
                return PodIdentity(self._job.metadata.namespace, pod.name, pod.uid)
        return None

    def ask(self, request: str) -> None:
        """Annotate the job with a fault that shall be made on purpose."""
        annotations = {**self._job.metadata.annotations, ANNOTATION_INJECT: request}
        metadata = self._job.metadata.model_copy(update={"annotations": annotations})
        self._job = self._job.model_copy(update={"metadata": metadata})
        self._on_change()

    async def harm(self, pod: PodProcess, means: Means) -> None:
        """Make a pod or its machine fail. A pod that is deleted has its grace period, which is not waited for."""
        if means is Means.DELETE:
            self._delete(DeletePod(pod.name, pod.uid, force=False))
            self._on_change()
        elif means is Means.CUT_POWER:
            pod.kill_node()
        else:
            pod.freeze()
            task = asyncio.create_task(_thaw(pod), name=f"thaw-{pod.name}")
            self._thawing.add(task)
            task.add_done_callback(self._thawing.discard)

    @property
    def processes(self) -> list[PodProcess]:
        return list(self._pods.values())

    def playing(self, role: Role) -> list[PodProcess]:
        """Pods that play a role now, members of the epoch by rank first."""
        members = {m.uid: m.rank for m in self._job.status.members}
        alive = [pod for pod in self._pods.values() if not pod.deleting and pod.node_alive]
        if role is Role.TRAINER:
            return sorted((pod for pod in alive if pod.uid in members), key=lambda pod: members[pod.uid])
        return [pod for pod in alive if pod.role is role and pod.uid not in members]

    async def lose(self, pod: PodProcess) -> None:
        """Delete a pod as `kubectl delete pod` would."""
        pod.deleting = True
        self._on_change()
        await self._end(pod, force=False)

    async def close(self) -> None:
        """End every process."""
        await asyncio.gather(*(pod.delete(force=True) for pod in (*self.processes, *self._ghosts)))
        tasks = [*self._lives.values(), *self._thawing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _thaw(pod: PodProcess) -> None:
    await asyncio.sleep(FREEZE_SECONDS)
    pod.thaw()
