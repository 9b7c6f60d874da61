"""Finding the nearest good copy of a committed checkpoint: own memory, then a peer's, then storage.

A bad copy is skipped with a warning, never loaded. When every place has been tried, the error names them all.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from robustrl.checkpoint.folder import MANIFEST, READ_BYTES, BadCopy, make_beside, put_in_place, read_manifest, verify
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.control import Peer
from robustrl_api.errors import describe
from robustrl_api.version import Version

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
STALL_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 1 << 20
"""Of a file, after `STALL_SECONDS`: a peer that is slower than storage would be is as good as gone."""
LONGEST_MANIFEST_BYTES = 16 << 20


class NoCopy(Exception):
    """No place has a good copy of the checkpoint."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A committed checkpoint. Any folder with one of `roots` holds all that a data-parallel rank needs."""

    version: Version
    roots: frozenset[str]
    rank: int


@dataclass(frozen=True, slots=True)
class Found:
    """A verified folder, and where the checkpoint was."""

    path: Path
    place: str
    """memory, peer or storage."""
    whose: str = ""
    """The peer's pod."""


async def obtain(
    wanted: Wanted, memory: Shelf, storage: Shelf | None, peers: Sequence[Peer], keeper: str = ""
) -> Found:
    """A verified folder of the wanted checkpoint.

    Args:
        keeper: the pod that should have a copy of it.

    Raises:
        NoCopy: there is none anywhere; the message says what was wrong with each place.
    """
    problems: list[str] = []
    found = await _local(wanted, memory, "memory", problems)
    found = found or await _from_peers(wanted, memory, nearest_first(peers, keeper), problems)
    if found is None and storage is not None:
        found = await _local(wanted, storage, "storage", problems)
    if found is None:
        raise NoCopy(f"no good copy of checkpoint {wanted.version}: " + ("; ".join(problems) or "nobody has one"))
    return found


def nearest_first(peers: Sequence[Peer], keeper: str) -> list[Peer]:
    """Trainers, who made it; then the keeper; then whoever kept one before. Equals by chance, to share the load."""
    return sorted(peers, key=lambda peer: (peer.rank < 0, peer.pod != keeper, random.random()))


async def _local(wanted: Wanted, shelf: Shelf, place: str, problems: list[str]) -> Found | None:
    copies = shelf.copies(wanted.version)
    own = shelf.folder(wanted.version, wanted.rank)
    for folder in sorted(copies, key=lambda path: path != own):
        try:
            await asyncio.to_thread(verify, folder, wanted.roots)
            return Found(folder, place)
        except BadCopy as error:
            log.warning("skipping a copy in %s: %s", place, error)
            problems.append(f"{place}: {error}")
    return None


async def _from_peers(wanted: Wanted, memory: Shelf, peers: Sequence[Peer], problems: list[str]) -> Found | None:
    async with session() as calls:
        for peer in peers:
            try:
                return Found(await _fetch(calls, wanted, memory, peer), "peer", peer.pod)
            except (aiohttp.ClientError, TimeoutError, BadCopy, OSError, ValueError) as error:
                problems.append(f"{peer.pod}: {describe(error)}")
    return None


async def _fetch(calls: aiohttp.ClientSession, wanted: Wanted, memory: Shelf, peer: Peer) -> Path:
    async with calls.get(_url(peer, wanted.version)) as response:
        response.raise_for_status()
        parts = await response.json()
    if not isinstance(parts, dict):
        raise BadCopy("it does not speak of checkpoints")
    part = next((str(part) for part, root in parts.items() if str(root) in wanted.roots), None)
    if part is None:
        raise BadCopy("it does not hold that checkpoint")
    target = memory.folder(wanted.version, wanted.rank)
    await download(calls, peer, wanted.version, part, wanted.roots, target)
    return target


def session() -> aiohttp.ClientSession:
    """For calls to other agents: a peer that is gone or stalls costs seconds."""
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=STALL_SECONDS)
    return aiohttp.ClientSession(timeout=timeout)


async def download(
    calls: aiohttp.ClientSession, peer: Peer, version: Version, part: str, roots: frozenset[str], target: Path
) -> None:
    """Fetch a part of a checkpoint from a peer's memory; `target` appears complete and verified, or not at all.

    Raises:
        BadCopy: what it has is not one of `roots`, or more than it should be.
        aiohttp.ClientError, TimeoutError: the peer is gone, or stalls.
        OSError: there is no room.
    """
    temporary = make_beside(target)
    url = f"{_url(peer, version)}/{part}"
    try:
        await _file(calls, f"{url}/{MANIFEST}", temporary / MANIFEST, LONGEST_MANIFEST_BYTES)
        manifest = read_manifest(temporary)
        if manifest.root not in roots:
            raise BadCopy("it holds another checkpoint than the one committed")
        for entry in manifest.files:
            await _file(calls, f"{url}/{entry.name}", temporary / entry.name, entry.size_bytes)
        await asyncio.to_thread(verify, temporary, roots)
        put_in_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


async def _file(calls: aiohttp.ClientSession, url: str, path: Path, most_bytes: int) -> None:
    seconds = patience(most_bytes)
    try:
        async with asyncio.timeout(seconds):
            await _take(calls, url, path, most_bytes)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"{path.name} did not come within {seconds:.0f} s") from error


def patience(size_bytes: int) -> float:
    """Seconds that a file of this size may take."""
    return STALL_SECONDS + size_bytes / SLOWEST_BYTES_PER_SECOND


async def _take(calls: aiohttp.ClientSession, url: str, path: Path, most_bytes: int) -> None:
    async with calls.get(url) as response:
        response.raise_for_status()
        with path.open("wb") as stream:
            async for block in response.content.iter_chunked(READ_BYTES):
                stream.write(block)
                if stream.tell() > most_bytes:
                    raise BadCopy(f"{path.name} has more than its {most_bytes} bytes")


def _url(peer: Peer, version: Version) -> str:
    return f"http://{peer.address}:{peer.agent_port}/checkpoints/{version}"
