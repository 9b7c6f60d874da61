"""Keeps an engine's weights current: SERVING -> PULLING -> VERIFIED -> APPLYING -> SERVING.

A pull goes to a shadow file and touches nothing that serves. Only a version whose every chunk and root digest are
right is applied, and the mark "applying" is on disk while it is: an engine that dies in the middle of it comes back
knowing that it must apply a whole version before it answers anybody.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import random
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from robustrl.engines.adapter import EngineAdapter, EngineError
from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused
from robustrl.supervisor.publisher import Publisher
from robustrl_api.version import Version
from weightsync import Address, BadManifest, Holding, Incomplete, Manifest, fetch_manifest, pull
from weightsync.transport import TransportError

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
RETRY_SECONDS = (0.05, 2.0)
KEPT_FILES = 2


class ReplicaState(StrEnum):
    STARTING = "Starting"
    SERVING = "Serving"
    PULLING = "Pulling"
    APPLYING = "Applying"


@dataclass(frozen=True)
class Held:
    """A verified version in this pod's memory."""

    version: Version
    manifest: Manifest
    data: memoryview
    folder: Path


class WeightFollower:
    """Follows the managers' current version for one engine process after another."""

    def __init__(self, managers: ManagersClient, publisher: Publisher, folder: Path, pod: str) -> None:
        self._managers, self._publisher, self._pod = managers, publisher, pod
        self._folder = folder
        self._torn_mark = folder / "applying"
        self._held: Held | None = None
        self._pull_task: asyncio.Task[Held] | None = None
        self.state = ReplicaState.STARTING
        self.version = ""
        """What the engine serves; empty while it serves nothing of ours."""
        self.refused = False
        """Whether the engine failed at the last version it was given, or did not answer."""
        self.changed = asyncio.Event()

    @property
    def torn(self) -> bool:
        """Whether an apply was cut off: whatever the engine holds must not be served."""
        return self._torn_mark.exists()

    def engine_lost(self) -> None:
        """The engine process is gone, and its weights with it. What this pod's memory holds stays."""
        self.version = ""
        self._become(ReplicaState.STARTING)

    def _become(self, state: ReplicaState) -> None:
        self.state = state
        self.changed.set()

    async def run(self, engine: EngineAdapter) -> None:
        """Follow until cancelled, for an engine that is up and serves nothing yet."""
        if self._held is not None:
            await self._apply(engine, self._held)
        failures = 0
        while True:
            try:
                await self._follow(engine)
                failures, self.refused = 0, False
            except (ManagersAway, ManagersRefused, TransportError, BadManifest, Incomplete, EngineError) as error:
                self.refused = isinstance(error, EngineError)
                if self.state is not ReplicaState.STARTING:
                    self._become(ReplicaState.SERVING if self.version and not self.torn else ReplicaState.STARTING)
                delay = min(RETRY_SECONDS[1], RETRY_SECONDS[0] * 2 ** min(failures, 8)) * random.uniform(0.5, 1.0)
                if failures % 10 == 1:
                    log.warning("weights not updated (again in %.2f s): %s", delay, error)
                failures += 1
                await asyncio.sleep(delay)

    async def _follow(self, engine: EngineAdapter) -> None:
        """Wait for a newer version than the engine's, pull it, apply it."""
        path = f"/v1/versions/current?after={self.version}&wait_seconds={POLL_SECONDS}"
        current = await self._managers.call("GET", path, seconds=POLL_SECONDS + 5)
        if current is None:
            return
        version = Version(current["epoch"], current["step"])
        held = self._held
        if held is None or held.version != version:
            held = await self._finish_pull(version, current)
        await self._apply(engine, held)

    async def _finish_pull(self, version: Version, current: dict[str, object]) -> Held:
        """Pull in a task that outlives the engine: what it brings serves the next engine and the neighbours as well,
        and UCX does not take kindly to being cut off in the middle of a transfer."""
        if self._pull_task is None or self._pull_task.done():
            self._pull_task = asyncio.create_task(self._pull(version, current), name="pull")
        self._held = await asyncio.shield(self._pull_task)
        return self._held

    def close(self) -> None:
        """Leave a pull that is under way to end by itself; its own deadlines bound it."""
        if self._pull_task is not None and not self._pull_task.done():
            self._publisher.see_out(self._pull_task)

    async def _pull(self, version: Version, current: dict[str, object]) -> Held:
        self._become(ReplicaState.PULLING)
        sources = self._sources(current)
        manifest = await self._manifest(version, str(current["root"]), sources)
        folder = self._folder / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        data = _shadow(folder / "model.safetensors", manifest.size_bytes)
        held = Holding(self._held.manifest, self._held.data) if self._held else None
        stats = await pull(manifest, sources, data, held=held)
        log.info(
            "pulled %s: %d bytes in %.3f s from %d sources, %d bytes were here already",
            version, stats.bytes_pulled, stats.seconds, stats.sources, stats.bytes_skipped,
        )  # fmt: skip
        self._drop_old(version)
        # The torch side loads the file; this side goes on serving the same pages to neighbours.
        (await self._publisher.ready()).hold(manifest, data)
        return Held(version, manifest, data.toreadonly(), folder)

    def _sources(self, current: dict[str, object]) -> list[Address]:
        """Neighbours first, in random order so that nobody is everybody's choice; the publisher last."""
        holders = current.get("holders") or []
        assert isinstance(holders, list)
        neighbours = [Address.parse(h["address"]) for h in holders if h["pod"] != self._pod and h.get("address")]
        random.shuffle(neighbours)
        publisher = Address.parse(str(current["publisher"]))
        return [*(n for n in neighbours if n != publisher), publisher]

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
        self._become(ReplicaState.APPLYING)
        self._torn_mark.write_text(str(held.version))
        await engine.apply_weights(held.folder, str(held.version))
        self._torn_mark.unlink()
        self.version = str(held.version)
        self._become(ReplicaState.SERVING)

    def _drop_old(self, newest: Version) -> None:
        folders = sorted((f for f in self._folder.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime)
        for folder in folders[:-KEPT_FILES]:
            if folder.name != str(newest):
                shutil.rmtree(folder, ignore_errors=True)


def _shadow(path: Path, size_bytes: int) -> memoryview:
    """A new writable file in memory, mapped. A half-written one of the same name is replaced."""
    path.unlink(missing_ok=True)
    with path.open("w+b") as file:
        file.truncate(size_bytes)
        return memoryview(mmap.mmap(file.fileno(), size_bytes))
