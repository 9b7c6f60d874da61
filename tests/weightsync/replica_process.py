"""Replicas in processes of their own, for tests: forked quickly, told what to do by lines of JSON, and killed.

A template process imports everything and starts nothing; every replica is forked from it, so that hundreds of them fit
into a test. Commands: hold, pull, cancel, flip, drop, have; each with an "id" that its answer carries.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
CHUNK_BYTES = 128 * 1024


def weights(seed: int, size: int, like: int | None = None) -> bytearray:
    """The same bytes wherever they are made. `like`: the second half is that of another seed."""
    data = random.Random(seed).randbytes(size)
    if like is not None:
        data = data[: size // 2] + random.Random(like).randbytes(size)[size // 2 :]
    return bytearray(data)


class Replica:
    """The controlling end."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid, self._connection = pid, connection
        self._lines = connection.makefile("rw")
        self._answers: dict[int, dict[str, Any]] = {}
        self._ids = 0
        self.alive = True
        self.address = str(self.wait(0, 20)["address"])

    def tell(self, do: str, **fields: object) -> int:
        """Send a command; its id."""
        self._ids += 1
        self._lines.write(json.dumps({"do": do, "id": self._ids, **fields}) + "\n")
        self._lines.flush()
        return self._ids

    def wait(self, number: int, seconds: float = 30.0) -> dict[str, Any]:
        """The answer to a command."""
        self._connection.settimeout(seconds)
        while number not in self._answers:
            answer = json.loads(self._lines.readline())
            self._answers[answer["id"]] = answer
        return self._answers.pop(number)

    def ask(self, do: str, **fields: object) -> dict[str, Any]:
        return self.wait(self.tell(do, **fields))

    def signal(self, number: signal.Signals) -> None:
        if not self.alive:
            return
        os.kill(self.pid, number)
        if number is signal.SIGKILL:
            self.alive = False

    def end(self) -> None:
        if self.alive:
            self.signal(signal.SIGKILL)
        self._connection.close()


class Replicas:
    """Starts replicas and keeps those that are well for the next run."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._spare: list[Replica] = []
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "weightsync")])}
        self._template = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def take(self, count: int) -> list[Replica]:
        """Replicas that hold nothing."""
        return [self._spare.pop() if self._spare else self._fork() for _ in range(count)]

    def give_back(self, replicas: list[Replica]) -> None:
        for replica in replicas:
            if replica.alive:
                replica.signal(signal.SIGCONT)
                replica.ask("drop")
                self._spare.append(replica)
            else:
                replica.end()

    def _fork(self) -> Replica:
        self._count += 1
        path = self._folder / f"{self._count}.sock"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            listening.settimeout(20)
            assert self._template.stdin
            assert self._template.stdout
            self._template.stdin.write(f"{path}\n")
            self._template.stdin.flush()
            pid = int(self._template.stdout.readline())
            connection, _ = listening.accept()
        return Replica(pid, connection)

    def close(self) -> None:
        for replica in self._spare:
            replica.end()
        self._template.kill()
        self._template.wait()


def template() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    from weightsync import ucx

    ucx.start()  # imports it; UCX itself starts with the first use, in the fork

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(Process().run(line.strip()))
            finally:
                os._exit(1)
        print(pid, flush=True)


class Process:
    """A replica, from within."""

    def __init__(self) -> None:
        from weightsync import Source
        from weightsync.swarm.config import SwarmConfig
        from weightsync.swarm.strikes import Strikes

        # Patient enough for a busy machine, short enough for hundreds of stalls.
        self.config = SwarmConfig(stall_seconds=0.4, rest_seconds=1.0)
        self.source = Source(self.config)
        self.strikes = Strikes()
        self.pulls: dict[str, asyncio.Task[Any]] = {}
        self.data: dict[str, bytearray] = {}
        self.manifests: dict[str, Any] = {}

    async def run(self, path: str) -> None:
        self.address = f"{HOST}:{await self.source.start()}"
        reader, self.writer = await asyncio.open_unix_connection(path, limit=1 << 24)
        self.say(id=0, address=self.address)
        tasks = set()
        while line := await reader.readline():
            command = json.loads(line)
            task = asyncio.create_task(self.do(command.pop("do"), command.pop("id"), command))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        os._exit(0)

    def say(self, **fields: object) -> None:
        self.writer.write(json.dumps(fields).encode() + b"\n")

    async def do(self, what: str, number: int, fields: dict[str, Any]) -> None:
        try:
            answer = await getattr(self, what)(**fields)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        self.say(id=number, **answer)

    async def hold(
        self, seed: int, size: int, step: int = 1, epoch: int = 1, like: int | None = None
    ) -> dict[str, Any]:
        """Have all of a version, as its publisher."""
        from weightsync import Manifest

        data = weights(seed, size, like)
        manifest = Manifest.of(data, epoch=epoch, step=step, chunk_bytes=CHUNK_BYTES)
        self.data[manifest.root], self.manifests[manifest.root] = data, manifest
        self.source.hold(manifest, data, publisher=True)
        return {"root": manifest.root, "text": manifest.to_json().decode(), "chunks": len(manifest.chunks)}

    async def pull(
        self,
        text: str,
        root: str,
        peers: list[str],
        publishers: Sequence[str] = (),
        held: str = "",
        patience: float = 10.0,
    ) -> dict[str, Any]:
        """Pull a version, into new memory or where its pull was cancelled."""
        from weightsync import Holding, Incomplete, Manifest, Peer, Peers, pull

        manifest = Manifest.from_json(text.encode(), root)
        known = Peers([*(Peer(p) for p in peers), *(Peer(p, publisher=True) for p in publishers)])
        holding = None
        if held:
            holding = Holding(self.manifests[held], memoryview(self.data[held]), self.source.verified(held))
        data = self.data.setdefault(root, bytearray(manifest.size_bytes))
        self.manifests[root] = manifest
        task = asyncio.create_task(
            pull(
                manifest, known, memoryview(data), source=self.source, me=Peer(self.address),
                held=holding, strikes=self.strikes, patience_seconds=patience, config=self.config,
            )
        )  # fmt: skip
        self.pulls[root] = task
        try:
            stats = await task
        except asyncio.CancelledError:
            return {"cancelled": True}
        except Incomplete as incomplete:
            return {"missing": sorted(incomplete.missing), "why": str(incomplete)}
        quarantined = sorted(self.strikes.names(time.monotonic()))
        return {
            "exact": Manifest.of(data, epoch=manifest.epoch, step=manifest.step, chunk_bytes=CHUNK_BYTES) == manifest,
            "seconds": stats.seconds, "pulled": stats.bytes_pulled, "skipped": stats.bytes_skipped,
            "sources": stats.sources, "strikes": stats.strikes, "quarantined": quarantined,
        }  # fmt: skip

    async def cancel(self, root: str) -> dict[str, Any]:
        """Cancel a pull, and use its memory for something else: nothing may be written to it any more."""
        task = self.pulls[root]
        task.cancel()
        await asyncio.wait({task})
        self.source.drop(root)
        data = self.data[root]
        data[:] = b"\x5a" * len(data)
        await asyncio.sleep(0.05)
        return {"untouched": data.count(b"\x5a") == len(data), "ended_first": not task.cancelled()}

    async def flip(self, root: str, at: int) -> dict[str, Any]:
        """A bit goes bad in memory."""
        self.data[root][at] ^= 1
        return {}

    async def have(self, root: str) -> dict[str, Any]:
        return {"have": self.source.verified(root), "slots": self.source.uploads.leases.in_use}

    async def drop(self) -> dict[str, Any]:
        from weightsync.swarm.strikes import Strikes

        for task in self.pulls.values():
            task.cancel()
        if self.pulls:
            await asyncio.wait(self.pulls.values())
        for root in list(self.source.held):
            self.source.drop(root)
        self.pulls, self.data, self.manifests, self.strikes = {}, {}, {}, Strikes()
        return {}


if __name__ == "__main__":
    template()
