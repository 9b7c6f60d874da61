"""Keeps an engine's weights current: SERVING -> PULLING -> VERIFIED -> APPLYING -> SERVING.

A pull goes to a shadow file and touches nothing that serves. Only a version whose every chunk and root digest are
right is applied, and the mark "applying" is on disk while it is: an engine that dies in the middle of it comes back
knowing that it must apply a whole version before it answers anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
import random
import shutil
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from robustrl.engines.adapter import EngineAdapter, EngineError
from robustrl.supervisor.holder import Holder
from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from robustrl.supervisor.publisher import Publisher
from robustrl_api.version import Version
from weightsync import (
    Address,
    BadManifest,
    Holding,
    Incomplete,
    Manifest,
    Peer,
    Peers,
    PullStats,
    Source,
    fetch_manifest,
    pull,
)
from weightsync import replica as life
from weightsync.source import KEPT_VERSIONS
from weightsync.swarm.strikes import Strikes
from weightsync.transport import TransportError

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
RETRY_SECONDS = (0.05, 2.0)
FINISH_ANYWAY = 0.5
"""Part of a version from which on it is pulled to its end though there is a newer one of the same epoch."""
REMEMBERED_SYNCS = 256
FORESEEN = (ManagersAway, ManagersRefused, TransportError, BadManifest, Incomplete, EngineError)
"""What goes wrong while machines come and go. Anything else is logged with where it comes from."""


class ReplicaState(StrEnum):
    """The replica's state as the managers know it."""

    STARTING = "Starting"
    SERVING = "Serving"
    PULLING = "Pulling"
    APPLYING = "Applying"


AS_REPORTED = {
    life.ReplicaState.EMPTY: ReplicaState.STARTING,
    life.ReplicaState.SERVING: ReplicaState.SERVING,
    life.ReplicaState.PULLING: ReplicaState.PULLING,
    life.ReplicaState.VERIFIED: ReplicaState.PULLING,
    life.ReplicaState.APPLYING: ReplicaState.APPLYING,
}


@dataclass(frozen=True)
class Held:
    """A verified version in this pod's memory."""

    version: Version
    manifest: Manifest
    data: memoryview
    folder: Path


@dataclass
class Underway:
    """A pull that is running, or was superseded: part of a version, which must not serve an engine."""

    version: Version
    task: asyncio.Task[Held]
    manifest: Manifest | None = None
    data: memoryview | None = None


class WeightFollower:
    """Follows the managers' current version for one engine process after another."""

    def __init__(self, managers: ManagersClient, publisher: Publisher, folder: Path) -> None:
        self._managers, self._publisher = managers, publisher
        self._folder = folder
        self._replica = life.Replica(life.FileMark(folder / "applying"))
        self._held: Held | None = None
        self._before: Held | None = None
        self._underway: Underway | None = None
        self._holder: Holder | None = None
        self._strikes = Strikes()
        self._seconds: deque[float] = deque(maxlen=REMEMBERED_SYNCS)
        self.metrics: dict[str, float] = {}
        """Of all pulls so far."""
        self.refused = False
        """Whether the engine failed at the last version it was given, or did not answer."""
        self.changed = asyncio.Event()

    @property
    def version(self) -> str:
        """What the engine serves; empty while it serves nothing of ours."""
        return self._replica.version

    @property
    def state(self) -> ReplicaState:
        return AS_REPORTED[self._replica.state]

    @property
    def torn(self) -> bool:
        """Whether an apply was cut off: whatever the engine holds must not be served."""
        return self._replica.torn

    def engine_lost(self) -> None:
        """The engine process is gone, and its weights with it. What this pod's memory holds stays."""
        self._replica.lost()
        self.changed.set()

    async def run(self, engine: EngineAdapter) -> None:
        """Follow until cancelled, for an engine that is up and serves nothing yet."""
        if self._underway is not None and _succeeded(self._underway.task):
            self._adopt(self._underway.task.result())  # it came while there was no engine
        at_once, failures = self._held, 0
        while True:
            try:
                if at_once is not None:
                    held, at_once = at_once, None
                    await self._apply(engine, held)
                await self._follow(engine)
                failures, self.refused = 0, False
            except Exception as error:  # whatever it is: an engine that nobody gives weights to serves nobody
                self.refused = isinstance(error, EngineError)
                if self._replica.state is life.ReplicaState.PULLING:
                    self._replica.pull_failed()
                self.changed.set()
                delay = min(RETRY_SECONDS[1], RETRY_SECONDS[0] * 2 ** min(failures, 8)) * random.uniform(0.5, 1.0)
                if failures % 10 == 1:
                    unforeseen = not isinstance(error, FORESEEN)
                    log.warning("weights not updated (again in %.2f s): %r", delay, error, exc_info=unforeseen)
                failures += 1
                await asyncio.sleep(delay)

    async def _follow(self, engine: EngineAdapter) -> None:
        """Wait for a newer version than the engine's, pull it, apply it."""
        current = await self._newer_than(self.version)
        if current is None:
            return
        held = self._held
        if held is None or held.version != _version(current):
            held = await self._finish_pull(current)
        if held is not None:
            await self._apply(engine, held)

    async def _newer_than(self, version: str) -> dict[str, Any] | None:
        path = f"/v1/versions/current?after={version}&wait_seconds={POLL_SECONDS}"
        current: dict[str, Any] | None = await self._managers.call("GET", path, seconds=POLL_SECONDS + 5)
        return current

    async def _finish_pull(self, current: dict[str, Any]) -> Held | None:
        """Pull in a task that outlives the engine: what it brings serves the next engine and the neighbours as well.
        None if there is something newer to pull instead."""
        version = _version(current)
        underway = self._underway
        self._replica.pull(str(version))
        self.changed.set()
        failed = underway is not None and underway.task.done() and not _succeeded(underway.task)
        if underway is None or failed or underway.version != version:
            here = await self._supersede(version)
            underway = self._underway = Underway(version, asyncio.create_task(self._pull(current, here), name="pull"))
        watch = asyncio.create_task(self._overtaken(version), name="watch for newer weights")
        try:
            await asyncio.wait({underway.task, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
        if not underway.task.done():
            watch.result()
            return None
        return self._adopt(await underway.task)

    def _adopt(self, held: Held) -> Held:
        """This is the newest whole version here. The one before it is served on until the next comes."""
        if self._held is not None and self._held is not held:
            self._before = self._held
        self._held = held
        return held

    async def _overtaken(self, here: Version) -> None:
        """Return when a newer version makes the one that is pulled not worth its rest. Where enough of it is here it is
        pulled to its end all the same, unless its epoch is over, or holders have let go of it: they keep two versions.

        This is cancelled once for each version, and what it refers to stays until the garbage collector comes: so it
        is not given the pull, which has the weights.
        """
        newest = here
        while True:
            newer = None
            with contextlib.suppress(ManagersAway, ManagersRefused):
                newer = await self._newer_than(str(newest))
            if newer is None:
                await asyncio.sleep(RETRY_SECONDS[0])
                continue
            newest = _version(newer)
            void = newest.epoch != here.epoch or newest.step >= here.step + KEPT_VERSIONS
            if void or await self._part_here() < FINISH_ANYWAY:
                return

    async def _part_here(self) -> float:
        """Of the version that is pulled."""
        manifest = self._underway.manifest if self._underway is not None else None
        if manifest is None:
            return 0.0
        have = (await self._publisher.ready()).verified(manifest.root)
        return have.bit_count() / max(1, len(manifest.chunks))

    async def _supersede(self, version: Version) -> Holding | None:
        """End a pull that is not wanted any more. What this pod's memory has already: a whole version, or part of the
        one whose pull ended, unless that is of another epoch and so void."""
        last = self._underway
        if last is not None and not last.task.done():
            last.task.cancel()
            await asyncio.wait({last.task})  # nothing is written to its memory after this
        if last is not None and last.manifest is not None and last.data is not None and not _succeeded(last.task):
            source = await self._publisher.ready()
            have = source.verified(last.manifest.root)
            source.drop(last.manifest.root)
            if last.version.epoch == version.epoch and have:
                return Holding(last.manifest, last.data, have)
        return Holding(self._held.manifest, self._held.data) if self._held else None

    def close(self) -> None:
        """Leave a pull that is under way to end by itself; its own deadlines bound it."""
        if self._holder is not None:
            self._holder.close()
        if self._underway is not None and not self._underway.task.done():
            self._publisher.see_out(self._underway.task)

    async def _pull(self, current: dict[str, Any], here: Holding | None) -> Held:
        version = _version(current)
        source = await self._publisher.ready()
        if self._holder is None:
            assert self._publisher.address is not None, "set before it is ready"
            self._holder = Holder(self._managers, source, self._publisher.address, self._strikes)
        addresses = self._sources(current)
        manifest = await self._manifest(version, str(current["root"]), addresses)
        self._make_room(source, version)
        folder = self._folder / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        data = await asyncio.to_thread(_shadow, folder / "model.safetensors", manifest.size_bytes)
        assert self._underway is not None, "this task is its"
        self._underway.manifest, self._underway.data = manifest, data
        publisher = str(current["publisher"])
        peers = Peers([Peer(str(a), publisher=str(a) == publisher) for a in addresses])
        self._holder.announce(manifest, peers)
        stats = await pull(
            manifest, peers, data, source=source, me=self._holder.me, held=here, strikes=self._strikes
        )  # fmt: skip
        self._count(version, stats)
        self._holder.announce(manifest, peers)  # all of it now
        return Held(version, manifest, data.toreadonly(), folder)

    def _count(self, version: Version, stats: PullStats) -> None:
        log.info(
            "pulled %s: %d bytes in %.3f s from %d sources, %d bytes were here already",
            version, stats.bytes_pulled, stats.seconds, stats.sources, stats.bytes_skipped,
        )  # fmt: skip
        self._seconds.append(stats.seconds)
        ordered = sorted(self._seconds)
        for percent in (50, 95, 99):
            self.metrics[f"weight_sync_seconds_p{percent}"] = ordered[
                min(len(ordered) - 1, len(ordered) * percent // 100)
            ]
        for name, value in (
            ("weight_bytes_verified_total", stats.bytes_pulled),
            ("weight_bytes_skipped_total", stats.bytes_skipped),
            ("weight_bytes_wasted_total", stats.bytes_wasted),
            ("weight_strikes_total", stats.strikes),
            ("weight_syncs_total", 1),
        ):
            self.metrics[name] = self.metrics.get(name, 0.0) + value

    def _sources(self, current: dict[str, Any]) -> list[Address]:
        """Neighbours first, as the directory has them; the publisher last. What is no address is nobody's."""
        publisher = str(current["publisher"])
        named = [name for name in current.get("holders") or () if name not in (publisher, str(self._publisher.address))]
        addresses = []
        for name in [*named, publisher]:
            try:
                addresses.append(Address.parse(name))
            except ValueError as error:
                log.warning("nobody can be asked for weights there: %s", error)
        return addresses

    async def _manifest(self, version: Version, root: str, sources: list[Address]) -> Manifest:
        problems = []
        for source in sources:
            try:
                return await fetch_manifest(source, epoch=version.epoch, step=version.step, shard=0, root=root)
            except (TransportError, BadManifest) as error:
                problems.append(f"{source}: {error}")
        raise TransportError(f"no source gives the manifest of {version}: {'; '.join(problems)}")

    async def _apply(self, engine: EngineAdapter, held: Held) -> None:
        """Make the engine serve what is held."""
        self._replica.have(str(held.version))
        self._replica.apply(str(held.version))
        self.changed.set()
        try:
            await engine.apply_weights(held.folder, str(held.version))
            self._replica.applied()
        except Exception:
            self._replica.apply_failed()
            raise
        finally:
            self.changed.set()

    def _make_room(self, source: Source, version: Version) -> None:
        """Let go of all but the newest whole version before the next takes as much room again."""
        if self._before is not None:
            source.drop(self._before.manifest.root)
            self._before = None
        for folder in self._folder.iterdir():
            with contextlib.suppress(ValueError):
                here = Version.parse(folder.name)
                if here < version and (self._held is None or here != self._held.version):
                    shutil.rmtree(folder, ignore_errors=True)


def _succeeded(task: asyncio.Task[Held]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _version(current: dict[str, Any]) -> Version:
    return Version(int(current["epoch"]), int(current["step"]))


def _shadow(path: Path, size_bytes: int) -> memoryview:
    """A new writable file in memory, mapped. A half-written one of the same name is replaced.

    Raises:
        OSError: there is no room. Seen now: whoever writes to a mapping that there is no room for is killed.
    """
    path.unlink(missing_ok=True)
    with path.open("w+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError:
            path.unlink()
            raise
        return memoryview(mmap.mmap(file.fileno(), size_bytes))
