"""Finding the nearest good copy of a committed checkpoint: own memory, then a peer's, then storage.

A bad copy is skipped with a warning, never loaded. When every place has been tried, the error names them all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from robustrl.checkpoint.folder import MANIFEST, BadCopy, Manifest, put_in_place, verify
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.control import Peer
from robustrl_api.version import Version

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
STALL_SECONDS = 5.0


class NoCopy(Exception):
    """No place has a good copy of the checkpoint."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A committed checkpoint. Any folder with one of `roots` holds all that a data-parallel rank needs."""

    version: Version
    roots: frozenset[str]
    rank: int


async def obtain(wanted: Wanted, memory: Shelf, storage: Shelf | None, peers: Sequence[Peer]) -> Path:
    """A verified folder of the wanted checkpoint.

    Raises:
        NoCopy: there is none anywhere; the message says what was wrong with each place.
    """
    problems: list[str] = []
    found = await _local(wanted, memory, "memory", problems)
    found = found or await _from_peers(wanted, memory, peers, problems)
    if found is None and storage is not None:
        found = await _local(wanted, storage, "storage", problems)
    if found is None:
        raise NoCopy(f"no good copy of checkpoint {wanted.version}: " + ("; ".join(problems) or "nobody has one"))
    return found


async def _local(wanted: Wanted, shelf: Shelf, place: str, problems: list[str]) -> Path | None:
    copies = shelf.copies(wanted.version)
    own = shelf.folder(wanted.version, wanted.rank)
    for folder in sorted(copies, key=lambda path: path != own):
        try:
            await asyncio.to_thread(verify, folder, wanted.roots)
            return folder
        except BadCopy as error:
            log.warning("skipping a copy in %s: %s", place, error)
            problems.append(f"{place}: {error}")
    return None


async def _from_peers(wanted: Wanted, memory: Shelf, peers: Sequence[Peer], problems: list[str]) -> Path | None:
    candidates = sorted(peers, key=lambda peer: (peer.rank < 0, random.random()))
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=STALL_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for peer in candidates:
            try:
                return await _fetch(session, wanted, memory, peer)
            except (aiohttp.ClientError, TimeoutError, BadCopy, OSError) as error:
                problems.append(f"{peer.pod}: {error or type(error).__name__}")
    return None


async def _fetch(session: aiohttp.ClientSession, wanted: Wanted, memory: Shelf, peer: Peer) -> Path:
    base = f"http://{peer.address}:{peer.agent_port}/checkpoints/{wanted.version}"
    async with session.get(base) as response:
        response.raise_for_status()
        ranks: dict[str, str] = await response.json()
    rank = next((rank for rank, root in ranks.items() if root in wanted.roots), None)
    if rank is None:
        raise BadCopy("it does not hold that checkpoint")
    return await _download(session, f"{base}/{rank}", wanted, memory)


async def _download(session: aiohttp.ClientSession, url: str, wanted: Wanted, memory: Shelf) -> Path:
    target = memory.folder(wanted.version, wanted.rank)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.mkdir(parents=True, exist_ok=True)
    manifest = Manifest.from_json((await _file(session, f"{url}/{MANIFEST}")).decode())
    for entry in manifest.files:
        (temporary / entry.name).write_bytes(await _file(session, f"{url}/{entry.name}"))
    (temporary / MANIFEST).write_text(manifest.to_json())
    await asyncio.to_thread(verify, temporary, wanted.roots)
    put_in_place(temporary, target)
    return target


async def _file(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as response:
        response.raise_for_status()
        return await response.read()
