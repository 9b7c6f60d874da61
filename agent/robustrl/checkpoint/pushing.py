"""Has committed checkpoints copied to the memory of another pod. That pod fetches the bytes; this one offers them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

import aiohttp

from robustrl.checkpoint.copier import Copier
from robustrl.checkpoint.folder import BadCopy, read_manifest
from robustrl.checkpoint.offer import ADDRESS, Offer
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.control import Peer
from robustrl_api.errors import describe
from robustrl_api.version import Version

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
COPY_SECONDS = 300.0
"""The longest that a copy may take. The other side gives up long before, when no byte comes."""
TRIES, RETRY_SECONDS = 3, 1.0


class Pusher(Copier):
    """One checkpoint at a time, to the pod that the assignment names.

    Args:
        memory: shelf of this pod's own checkpoints.
        pod: this pod's name.
        on_copied: called with each checkpoint that the keeper has.
    """

    def __init__(self, memory: Shelf, pod: str, on_copied: Callable[[Version], None] = lambda version: None) -> None:
        super().__init__()
        self._memory, self._pod, self._on_copied = memory, pod, on_copied
        self._keeper: Peer | None = None
        self._epoch = 0
        self._ranks = range(0)
        self._posting: asyncio.Task[str] | None = None
        self.copied: Version | None = None
        """The newest checkpoint that the keeper is known to have."""

    def assign(self, keeper: Peer | None, epoch: int, ranks: range) -> None:
        """Who keeps the copies of these ranks' parts from now on. A new keeper gets the newest checkpoint at once: the
        one before may be on a machine that lost its power, which never answers."""
        self._epoch, self._ranks = epoch, ranks
        if keeper != self._keeper:
            self._keeper, self.copied = keeper, None
            if self._posting is not None:
                self._posting.cancel()
            self._wake()

    @property
    def has_target(self) -> bool:
        return self._keeper is not None

    async def _copy_newest(self, version: Version) -> None:
        """A keeper that declines or is away is told again, with the next checkpoint at the latest."""
        for attempt in range(TRIES):
            if await self._offered(version) or self._woken.is_set():
                return
            await self._pause(RETRY_SECONDS * 2**attempt * random.uniform(0.5, 1.0))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _offered(self, version: Version) -> bool:
        """Whether there is nothing left to do."""
        keeper = self._keeper
        if keeper is None or version == self.copied:
            return True
        # It must not be taken off the shelf while the keeper reads it.
        with self._memory.pinned(version):
            parts = self._parts(version)
            if not parts:
                return True
            problem = await self._answer(asyncio.create_task(self._post(keeper, version, parts)))
        if problem:
            log.warning("%s keeps no copy of checkpoint %s: %s", keeper.pod, version, problem)
            return False
        if keeper == self._keeper:
            self.copied = version
            self._on_copied(version)
        log.info("checkpoint %s is in the memory of %s too", version, keeper.pod)
        return True

    def _parts(self, version: Version) -> dict[str, str]:
        """What this pod made of a checkpoint, or else what it restored from: a folder for each different root.

        Parts that it keeps for others are theirs to offer: else each keeper would pass on what it was given.
        """
        folders: dict[str, str] = {}
        here = self._memory.copies(version)
        own = {self._memory.folder(version, rank) for rank in self._ranks}
        for folder in [each for each in here if each in own] or here:
            try:
                folders.setdefault(read_manifest(folder).root, folder.name)
            except BadCopy as error:
                log.warning("a copy in memory is not offered to a peer: %s", error)
        return {name: root for root, name in folders.items()}

    async def _answer(self, posting: asyncio.Task[str]) -> str:
        """Nothing, or why the keeper does not have it now."""
        self._posting = posting
        try:
            await asyncio.wait({posting})
        finally:
            posting.cancel()
            self._posting = None
        return "another pod keeps the copies now" if posting.cancelled() else posting.result()

    async def _post(self, keeper: Peer, version: Version, parts: dict[str, str]) -> str:
        offer = Offer(pod=self._pod, epoch=self._epoch, version=str(version), parts=parts)
        timeout = aiohttp.ClientTimeout(total=COPY_SECONDS, connect=CONNECT_SECONDS)
        url = f"http://{keeper.address}:{keeper.agent_port}{ADDRESS}"
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(url, data=offer.model_dump_json()) as response,
            ):
                return "" if response.status == 200 else (await response.text())[:500]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return describe(error)
