"""Tells the managers which weights this pod holds, also while it still pulls them, and hears of others who do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Any

from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from weightsync import Address, Manifest, Peer, Peers, Source
from weightsync.swarm import chunk_set
from weightsync.swarm.strikes import Strikes

log = logging.getLogger(__name__)

PULLING_SECONDS = 0.5
HOLDING_SECONDS = 5.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def this_host() -> str:
    """One name for all pods of a machine, which need not know the machine's."""
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""


class Holder:
    """Announces one version after another.

    Args:
        source: what serves them, and knows which chunks are here.
        strikes: of this pod's pulls. Who is quarantined by several pods is named to nobody.
    """

    def __init__(self, managers: ManagersClient, source: Source, address: Address, strikes: Strikes) -> None:
        self._managers, self._source, self._strikes = managers, source, strikes
        self.me = Peer(str(address), this_host())
        self._manifest: Manifest | None = None
        self._peers = Peers()
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="announce weights")

    def announce(self, manifest: Manifest, peers: Peers) -> None:
        """From now on announce this version; `peers` hears who else holds it."""
        self._manifest, self._peers = manifest, peers
        self._changed.set()

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if self._manifest is not None:
                # Managers that are away miss an announcement; those that are back hear the next.
                with contextlib.suppress(ManagersAway, ManagersRefused):
                    await self._tell(self._manifest)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()

    def _pause(self) -> float:
        manifest = self._manifest
        whole = manifest is not None and self._source.verified(manifest.root) == chunk_set.full(len(manifest.chunks))
        return HOLDING_SECONDS if whole or manifest is None else PULLING_SECONDS

    async def _tell(self, manifest: Manifest) -> None:
        peers, count = self._peers, len(manifest.chunks)
        have = chunk_set.to_bytes(self._source.verified(manifest.root), count).hex()
        body = {
            "address": self.me.name, "host": self.me.host, "chunk_count": count, "have": have,
            "quarantined": sorted(self._strikes.names(time.monotonic())),
        }  # fmt: skip
        answer = await self._managers.call("PUT", f"/v1/versions/{manifest.root}/holders", body, seconds=2.0)
        peers.update(_named(answer, count))


def _named(answer: Any, count: int) -> dict[Peer, chunk_set.ChunkSet]:
    """Who holds which of `count` chunks.

    Raises:
        ManagersAway: the answer is none of the managers', as of whoever has got their address.
    """
    try:
        return {
            Peer(str(other["address"]), str(other["host"])): chunk_set.from_bytes(bytes.fromhex(other["have"]), count)
            for other in answer["holders"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ManagersAway(f"who holds weights cannot be read from {answer!r:.100}") from error
