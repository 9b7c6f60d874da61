"""Copying committed checkpoints to somewhere else, in the background, newest first."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from robustrl_api.version import Version


class Copier(ABC):
    """One background task. A checkpoint that it was too slow for is skipped for a newer one."""

    def __init__(self) -> None:
        self._wanted: Version | None = None
        self._woken, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def committed(self, version: Version) -> None:
        """The ledger has accepted this checkpoint."""
        self._wanted = version
        self._wake()

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._wanted is not None:
                await self._copy_newest(self._wanted)
            if not self._woken.is_set():
                self._idle.set()

    @property
    @abstractmethod
    def has_target(self) -> bool:
        """Whether there is anywhere to copy to."""

    async def settled(self) -> None:
        """Return when the newest checkpoint is there, or has been given up until the next one."""
        await self._idle.wait()

    def _wake(self) -> None:
        self._idle.clear()
        self._woken.set()

    @abstractmethod
    async def _copy_newest(self, version: Version) -> None: ...
