"""Pulling a version: chunk after chunk from any holder, each verified before it counts.

Every holder is asked by several lanes, so the next chunk is on its way while the last is verified. Chunks arrive in
their place: the destination is a shadow that nobody reads before all of it is verified. A source that fails, stalls or
sends a wrong byte is left for the next one; what has been verified stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weightsync.manifest import BadManifest, Manifest
from weightsync.session import Session
from weightsync.transport import Address, BufferLost, Connection, SourceRefused, TransportError
from weightsync.wire import Operation

log = logging.getLogger(__name__)

LANES = 2
"""Requests in flight for each source."""
MAX_MANIFEST_BYTES = 64 << 20
MIN_CHUNK_SECONDS = 2.0
SLOWEST_BYTES_PER_SECOND = 10e6


class Incomplete(Exception):
    """No holder had the rest. What is missing is in `missing`; what was verified is in the destination."""

    def __init__(self, message: str, missing: frozenset[int]) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class PullStats:
    """What a pull cost."""

    seconds: float
    bytes_pulled: int
    bytes_skipped: int
    """Bytes that were there already: their digest was that of the version held."""
    sources: int


async def fetch_manifest(
    source: Address, *, epoch: int, step: int, shard: int, root: str, seconds: float = 10
) -> Manifest:
    """The manifest with this root digest, from a source that holds it.

    Raises:
        TransportError: the source does not give it.
        BadManifest: it gives something else.
    """
    connection = await Connection.open(source)
    try:
        session = Session(connection, epoch, step, shard, root)
        staging = np.empty(MAX_MANIFEST_BYTES, np.uint8)
        size = await session.ask(Operation.MANIFEST, 0, staging, seconds)
        return Manifest.from_json(staging[:size].tobytes(), root)
    finally:
        await connection.close()


async def pull(
    manifest: Manifest,
    sources: Sequence[Address],
    destination: memoryview,
    *,
    held: tuple[Manifest, memoryview] | None = None,
) -> PullStats:
    """Fill `destination` with the version, from the sources in their order of preference.

    Args:
        destination: writable, of the manifest's size; nobody reads it before this returns.
        held: a version that is here already; chunks with the same digest are copied from it.

    Raises:
        Incomplete: no source had the rest.
        ValueError: the destination is of another size.
    """
    started = time.monotonic()
    target = np.frombuffer(destination, np.uint8) if len(destination) else np.empty(0, np.uint8)
    if len(target) != manifest.size_bytes:
        raise ValueError(f"the manifest says {manifest.size_bytes} bytes, the destination has {len(target)}")
    missing = deque(_copy_held(manifest, target, held))
    skipped = manifest.size_bytes - sum(manifest.chunks[index].size_bytes for index in missing)
    used = 0
    problems = []
    for source in sources:
        if not missing:
            break
        used += 1
        try:
            await _pull_from(source, manifest, missing, target)
        except BufferLost as error:
            raise Incomplete(f"the destination is lost: {error}", frozenset(missing)) from error
        except (TransportError, BadManifest) as error:
            level = logging.DEBUG if isinstance(error, SourceRefused) else logging.WARNING
            log.log(level, "leaving source %s: %s", source, error)
            problems.append(f"{source}: {error}")
    if missing:
        why = "; ".join(problems) or "there is no source"
        raise Incomplete(f"{len(missing)} of {len(manifest.chunks)} chunks missing: {why}", frozenset(missing))
    return PullStats(time.monotonic() - started, manifest.size_bytes - skipped, skipped, used)


def _copy_held(manifest: Manifest, target: np.ndarray, held: tuple[Manifest, memoryview] | None) -> list[int]:
    """Copy the chunks that have not changed; the indices of the others."""
    if held is None:
        return list(range(len(manifest.chunks)))
    here = {chunk.digest: chunk for chunk in held[0].chunks}
    missing = []
    for index, chunk in enumerate(manifest.chunks):
        same = here.get(chunk.digest)
        if same is None or same.size_bytes != chunk.size_bytes:
            missing.append(index)
            continue
        part = held[1][same.offset : same.offset + same.size_bytes]
        target[chunk.offset : chunk.offset + chunk.size_bytes] = np.frombuffer(part, np.uint8)
    return missing


async def _pull_from(source: Address, manifest: Manifest, missing: deque[int], target: np.ndarray) -> None:
    connection = await Connection.open(source)
    session = Session(connection, manifest.epoch, manifest.step, manifest.shard, manifest.root)
    lanes = [asyncio.create_task(_lane(session, manifest, missing, target)) for _ in range(min(LANES, len(missing)))]
    try:
        await asyncio.gather(*lanes)
    finally:
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        await connection.close()


async def _lane(session: Session, manifest: Manifest, missing: deque[int], target: np.ndarray) -> None:
    """Take missing chunks one after the other. A chunk is put back unless it was verified."""
    while missing:
        index = missing.popleft()
        chunk = manifest.chunks[index]
        done = False
        try:
            seconds = MIN_CHUNK_SECONDS + chunk.size_bytes / SLOWEST_BYTES_PER_SECOND
            await session.fetch(index, chunk, target[chunk.offset : chunk.offset + chunk.size_bytes], seconds)
            done = True
        finally:
            if not done:
                missing.append(index)
