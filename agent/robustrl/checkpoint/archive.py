"""Copies committed checkpoints to storage, and keeps a bounded number there and in memory.

Memory is looked after beside the copying: each step puts a checkpoint there, however long storage takes for one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from robustrl.checkpoint import folder
from robustrl.checkpoint.copier import Copier
from robustrl.checkpoint.refusal import Refusal
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.version import Version

log = logging.getLogger(__name__)

FLUSH_SECONDS = 5.0
SLOW_SECONDS = 120.0
"""Storage that has taken so long for a checkpoint is told of, since a file server that hangs raises no error."""


class Archive(Copier):
    """Writes to storage. One that cannot be written is reported, not fatal: memory copies still protect the job.

    Args:
        tell: called after each checkpoint with what kept it from being written, or nothing.
    """

    def __init__(self, memory: Shelf, storage: Shelf | None, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._memory = memory
        self._storage = storage
        self._tell = tell
        self._more = asyncio.Event()
        self.refusal = Refusal()

    def committed(self, version: Version) -> None:
        super().committed(version)
        self._more.set()

    async def run(self) -> None:
        """Copy, and keep memory bounded, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run(), name="copy to storage")
            tasks.create_task(self._keep_memory_bounded(), name="prune memory")

    async def _keep_memory_bounded(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            if self._wanted is not None:
                await asyncio.to_thread(self._memory.prune, self._wanted)

    @property
    def has_target(self) -> bool:
        return self._storage is not None

    async def _copy_newest(self, version: Version) -> None:
        if self._storage is None:
            return
        try:
            with self._memory.pinned(version):
                await self._patiently(asyncio.create_task(asyncio.to_thread(self._store, version, self._storage)))
            self._tell("")
        except OSError as error:
            # Not the version: the same trouble with the next one is no news.
            self._tell(f"checkpoints cannot be written to storage: {error.strerror or error}")

    async def _patiently(self, work: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait({work}, timeout=SLOW_SECONDS)
        if not done:
            self._tell(f"storage is slow: it has taken more than {SLOW_SECONDS:.0f} s to write a checkpoint to it")
        await work

    async def flush(self) -> None:
        """Copy every checkpoint that only this pod may hold: it is about to go.

        One that the ledger accepted and whose workers died before they could say so is among them; one that the
        ledger never accepted does no harm, for nobody will ask for its digests.
        """
        if self._storage is None:
            return
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                for version in reversed(self._memory.versions()):
                    await asyncio.to_thread(self._copy, version, self._storage)
        except (OSError, TimeoutError) as error:
            log.warning("checkpoints were not all handed over to storage: %s", str(error) or "too slow")

    def _store(self, version: Version, storage: Shelf) -> None:
        self._copy(version, storage)
        storage.prune(version)

    def _copy(self, version: Version, storage: Shelf) -> None:
        for source in self._memory.copies(version):
            target = storage.folder(version, _rank(source))
            try:
                if not target.exists():
                    self.refusal.check()
                    folder.copy(source, target)
            except OSError:
                if not target.exists():  # else another pod was faster with its copy
                    raise


def _rank(path: Path) -> int:
    return int(path.name.removeprefix("rank-"))
