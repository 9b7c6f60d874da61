"""Keeping copies of another pod's newest checkpoints in this pod's memory, so that they survive that pod."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence

import aiohttp

from robustrl.checkpoint import fetch
from robustrl.checkpoint.folder import BadCopy, read_manifest
from robustrl.checkpoint.offer import Offer
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.control import Peer
from robustrl_api.errors import describe
from robustrl_api.version import Version

log = logging.getLogger(__name__)


class Declined(Exception):
    """The offer is not taken; the text says why."""


class Keeping:
    """Takes offers one after the other. The shelf's own bound holds for what is kept: two checkpoints."""

    def __init__(self, memory: Shelf) -> None:
        self._memory = memory
        self._epoch = 0
        self._peers: dict[str, Peer] = {}
        self._one_at_a_time = asyncio.Lock()

    def assign(self, epoch: int, peers: Sequence[Peer]) -> None:
        """The newest epoch that this pod knows of, and whose offers it may take."""
        self._epoch = epoch
        self._peers = {peer.pod: peer for peer in peers}

    async def take(self, offer: Offer) -> None:
        """Have every part of the offered checkpoint here, verified, when this returns.

        Raises:
            Declined: the offer comes from an epoch that is over or from a stranger, or the bytes were not good.
        """
        async with self._one_at_a_time:
            if offer.epoch < self._epoch:
                raise Declined(f"epoch {offer.epoch} is over: the current one is {self._epoch}")
            peer = self._peers.get(offer.pod)
            if peer is None:
                raise Declined(f"{offer.pod} is no pod of this job that is known here")
            version = Version.parse(offer.version)
            for part, root in offer.parts.items():
                if root not in self._held(version):
                    await self._fetch(peer, version, part, root)
            await asyncio.to_thread(self._memory.prune, version)

    def _held(self, version: Version) -> set[str]:
        """Roots of what is here of a version. Every part got its name only after it was verified, or was made here."""
        roots = set()
        for folder in self._memory.copies(version):
            try:
                roots.add(read_manifest(folder).root)
            except BadCopy:
                continue
        return roots

    async def _fetch(self, peer: Peer, version: Version, part: str, root: str) -> None:
        match = re.fullmatch(r"rank-(\d+)", part)
        if match is None:
            raise Declined(f"{part!r} is no part of a checkpoint")
        target = self._memory.folder(version, int(match[1]))
        if target.exists():
            raise Declined(f"another {part} of {version} is here already")
        try:
            async with fetch.session() as session:
                await fetch.download(session, peer, version, part, frozenset({root}), target)
        except (aiohttp.ClientError, TimeoutError, BadCopy, OSError) as error:
            raise Declined(f"{part} of {version} could not be fetched: {describe(error)}") from error
        log.info("keeping a copy of %s's checkpoint %s (%s)", peer.pod, version, part)
