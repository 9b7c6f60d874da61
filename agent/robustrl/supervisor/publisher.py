"""Publishes the trainers' weights: seals the file the training process wrote, serves it, announces it.

The training process is held only for the copy into memory. Sealing and announcing happen here, and only for versions
that the ledger has committed; the managers refuse any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import mmap
import os
import random
from pathlib import Path
from typing import Any

from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from robustrl_api.version import Version
from weightsync import Address, Manifest, Source, transport

log = logging.getLogger(__name__)

RETRY_SECONDS = (0.2, 5.0)
LOGGED_EACH = 10
"""Of the tries to announce a version: the first is logged, and then one of so many."""


def map_file(path: Path) -> memoryview:
    """A file's bytes without a copy; they stay readable after the file is removed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
    finally:
        os.close(descriptor)


class Publisher:
    """Owns the pod's weight source, whatever role the pod plays."""

    def __init__(self, managers: ManagersClient, host: str, port: int, chunk_bytes: int) -> None:
        self._managers = managers
        self._host, self._port, self._chunk_bytes = host, port, chunk_bytes
        self._source: asyncio.Future[Source] = asyncio.get_running_loop().create_future()
        self._newest = Version(0, 0)
        self._owned: set[asyncio.Task[Any]] = set()
        self._sealing = asyncio.Lock()
        self.address: Address | None = None

    async def start(self) -> None:
        """Bring UCX up and listen. Takes most of a second, so it happens beside the agent's start."""
        await asyncio.to_thread(transport.start)
        source = Source()
        port = await source.start(self._port)
        # UCX does not connect to other loopback addresses than this one.
        host = "127.0.0.1" if self._host.startswith("127.") else self._host
        self.address = Address(host, port)
        self._source.set_result(source)

    async def ready(self) -> Source:
        """The source, once it listens."""
        return await asyncio.shield(self._source)

    @property
    def bytes_sent(self) -> int:
        """To everybody, of all versions."""
        return self._source.result().bytes_sent if self._source.done() else 0

    def see_out(self, pull: asyncio.Task[Any]) -> None:
        """Own a pull whose engine is gone, until it ends."""
        self._owned.add(pull)
        pull.add_done_callback(self._seen_out)

    def _seen_out(self, pull: asyncio.Task[Any]) -> None:
        self._owned.discard(pull)
        if not pull.cancelled() and pull.exception() is not None:
            log.info("a pull that nobody waits for any more ended: %s", pull.exception())

    def begin(self, version: Version, path: str) -> None:
        """Publish in the background. What the training process says next must not wait for it."""
        work = asyncio.get_running_loop().create_task(self.publish(version, path), name=f"publish {version}")
        self._owned.add(work)
        work.add_done_callback(self._begun)

    def _begun(self, work: asyncio.Task[Any]) -> None:
        self._owned.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            log.error("could not %s", work.get_name(), exc_info=error)

    async def publish(self, version: Version, path: str) -> None:
        """Serve and announce a version that was just committed, unless a newer one comes meanwhile."""
        self._newest = max(self._newest, version)
        source = await self.ready()
        data = map_file(Path(path))  # at once: the training process keeps the newest few files only
        async with self._sealing:
            if version < self._newest:
                return
            # Beside the loop: it takes a second for every 10 GB, and heartbeats must go on.
            manifest = await asyncio.to_thread(
                Manifest.of, data, epoch=version.epoch, step=version.step, chunk_bytes=self._chunk_bytes
            )
        if version < self._newest:
            return
        source.hold(manifest, data, publisher=True)
        await self._announce(version, manifest.root)

    async def _announce(self, version: Version, root: str) -> None:
        """Until the managers have taken it, refuse it, or there is a newer one: without it the rollouts of a step may
        never begin, and the trainers would wait for them."""
        body = {"epoch": version.epoch, "step": version.step, "root": root, "publisher": str(self.address)}
        for attempt in itertools.count():
            if version < self._newest:
                return
            try:
                await self._managers.call("PUT", "/v1/versions", body)
                return
            except ManagersRefused as refusal:
                if refusal.reason != "Superseded":
                    log.warning("weights %s are not announced: %s", version, refusal)
                return
            except ManagersAway as error:
                if attempt % LOGGED_EACH == 0:
                    log.warning("weights %s are not announced yet (try %d): %s", version, attempt + 1, error)
                first, longest = RETRY_SECONDS
                await asyncio.sleep(min(longest, first * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0))

    async def close(self) -> None:
        if self._source.done():
            with contextlib.suppress(Exception):
                await self._source.result().close()
                transport.stop()
