"""Copies committed checkpoints to storage, and keeps a bounded number there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from robustrl.checkpoint import folder
from robustrl.checkpoint.copier import Copier
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.version import Version

log = logging.getLogger(__name__)

FLUSH_SECONDS = 5.0


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

    @property
    def has_target(self) -> bool:
        return self._storage is not None

    async def _copy_newest(self, version: Version) -> None:
        try:
            await asyncio.to_thread(self._store, version)
            self._tell("")
        except OSError as error:
            # Not the version: the same trouble with the next one is no news.
            self._tell(f"checkpoints cannot be written to storage: {error.strerror or error}")

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

    def _store(self, version: Version) -> None:
        self._memory.prune(version)
        if self._storage is None:
            return
        self._copy(version, self._storage)
        self._storage.prune(version)

    def _copy(self, version: Version, storage: Shelf) -> None:
        for source in self._memory.copies(version):
            target = storage.folder(version, _rank(source))
            try:
                if not target.exists():
                    folder.copy(source, target)
            except OSError:
                if not target.exists():  # else another pod was faster with its copy
                    raise


def _rank(path: Path) -> int:
    return int(path.name.removeprefix("rank-"))
