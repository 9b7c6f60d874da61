"""What faults can do to the local body's pods."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from robustrl.audit import record
from robustrl.supervisor.harm import inflict
from robustrl.supervisor.proc_stat import PARENT, SESSION, read_stat
from robustrl_api.control import Harm
from robustrl_api.names import Role
from robustrl_operator.faults.kind import Blow, Deed, Means
from robustrl_operator.local.body import LocalBody
from robustrl_operator.local.pod_process import PodProcess
from robustrl_operator.local.run_folder import RunFolder
from robustrl_operator.local.storage_harm import SETTLE_SECONDS, StorageHarm, damage_copies

log = logging.getLogger(__name__)
_TO_STORAGE = frozenset({Means.DAMAGE_CHECKPOINT, Means.FILL_STORAGE, Means.SEAL_STORAGE})


class LocalHand:
    """A `Hand` on one machine's processes."""

    def __init__(self, body: LocalBody, folder: RunFolder) -> None:
        self._body, self._folder = body, folder
        self._storage = StorageHarm(folder.checkpoints)
        self._slowing: set[asyncio.Task[None]] = set()

    def playing(self, role: Role) -> list[str]:
        return [pod.name for pod in self._body.playing(role)]

    async def do(self, blow: Blow) -> None:
        if blow.deed in _TO_STORAGE:
            await self._harm_storage(blow.deed)
            return
        pod = next(pod for pod in self._body.processes if pod.name == blow.pod)
        if not isinstance(blow.deed, Harm):
            await self._body.harm(pod, blow.deed)
        elif blow.deed is Harm.KILL_AGENT:
            pod.kill_agent()
        elif (pid := child_of(pod)) is not None:
            task = asyncio.create_task(_harm(pid, blow.deed), name=f"harm-{pod.name}")
            self._slowing.add(task)
            task.add_done_callback(self._slowing.discard)
            # A signal is sent by the first step of the task; only slowing down goes on.
            await asyncio.sleep(0)

    async def _harm_storage(self, deed: Deed) -> None:
        if deed is Means.DAMAGE_CHECKPOINT:
            await asyncio.sleep(SETTLE_SECONDS)
            await asyncio.to_thread(self._damage)
        else:
            await asyncio.to_thread(self._storage.fill if deed is Means.FILL_STORAGE else self._storage.seal)

    def _damage(self) -> None:
        newest = record.read(self._folder.ledger).commits[-1].version
        shelves = [*(pod.folder / "checkpoints" for pod in self._body.processes), self._folder.checkpoints]
        damaged = sum(damage_copies(shelf, newest) for shelf in shelves)
        log.warning("checkpoint %s: %d copies are damaged", newest, damaged)

    def mend(self) -> None:
        """What lasts for as long as nobody mends it is mended."""
        self._storage.mend()


def child_of(pod: PodProcess) -> int | None:
    """The process under the agent's care: it leads a session of its own, below the agent; the warm worker does not."""
    for pid in pod.descendants():
        stat = read_stat(pid)
        if pod.agent and stat and (int(stat[PARENT]), int(stat[SESSION])) == (pod.agent.pid, pid):
            return pid
    return None


async def _harm(pid: int, harm: Harm) -> None:
    with contextlib.suppress(ProcessLookupError):
        await inflict(pid, harm)
