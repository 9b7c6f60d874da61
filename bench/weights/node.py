"""One process of a benchmark: holds weights, pulls them, says what that cost. Commands and answers are lines of JSON.

{"do": "listen"}                                     -> {"port": ...}
{"do": "hold", "size": ..., "chunk": ...}            -> {"root": ...}, as the publisher unless told otherwise
{"do": "prepare", "size": ...}                       -> {}, with memory to pull into
{"do": "pull", "root": ..., "sources": [...], ...}   -> {"seconds": ..., "cpu_seconds": ..., ...}
{"do": "check"}                                      -> {"exact": ...}
{"do": "wait", "root": ..., "sources": [...], ...}   -> {"cpu_seconds": ...}, connected and idle meanwhile
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import resource
import sys
import time
from typing import Any

import numpy as np

from weightsync import Address, Incomplete, Manifest, Peer, Peers, Source, fetch_manifest, pull, ucx
from weightsync.link import Link
from weightsync.wire import Kind, Message, Version

EPOCH, STEP, SEED = 1, 1, 7
NEVER_SENT_TAG = 1 << 20


def weights(size: int) -> memoryview:
    """The same bytes in every process, and no two chunks alike."""
    view = shadow(size)
    view[:] = np.random.default_rng(SEED).bytes(size)
    return view


def shadow(size: int) -> memoryview:
    """Memory as `ucx_perftest` has it: in huge pages, which are in place before the clock runs."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)
    np.frombuffer(view, np.uint8)[:: mmap.PAGESIZE] = 1
    return view


def rss_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


class Node:
    def __init__(self) -> None:
        self._source = Source()
        self._target: memoryview | None = None

    async def listen(self) -> dict[str, Any]:
        return {"port": await self._source.start()}

    async def hold(self, size: int, chunk: int, publisher: bool = True) -> dict[str, Any]:
        data = weights(size)
        manifest = Manifest.of(data, epoch=EPOCH, step=STEP, chunk_bytes=chunk)
        self._source.hold(manifest, data, publisher=publisher)
        return {"root": manifest.root}

    async def prepare(self, size: int) -> dict[str, Any]:
        self._target = shadow(size)
        return {}

    async def pull(self, root: str, sources: list[str], size: int, me: str = "", serve: bool = False) -> dict[str, Any]:
        """Pull from these.

        Args:
            me: this node's own address; it serves while it pulls, and may be asked by anybody.
            serve: serve once all of it is here.
        """
        addresses = [Address.parse(text) for text in sources]
        if self._target is None:
            await self.prepare(size)
        assert self._target is not None
        before, cpu, began = rss_bytes(), time.process_time(), time.monotonic()
        manifest = await fetch_manifest(addresses[0], epoch=EPOCH, step=STEP, shard=0, root=root)
        error = ""
        try:
            if me:
                peers = Peers([Peer(str(address), address.host) for address in addresses])
                await pull(manifest, peers, self._target, source=self._source, me=Peer(me, me.rpartition(":")[0]))
            else:
                await pull(manifest, addresses, self._target)
        except Incomplete as incomplete:
            error = str(incomplete)
        ended, spent = time.monotonic(), time.process_time() - cpu
        if serve and not error:
            self._source.hold(manifest, self._target)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "ended": ended, "seconds": ended - began, "error": error, "cpu_seconds": spent,
            "grown_bytes": max(0, peak - before),
        }  # fmt: skip

    async def check(self) -> dict[str, Any]:
        """Compare with the original, when the clock does not run."""
        assert self._target is not None
        return {"exact": self._target == weights(len(self._target))}

    async def wait(self, sources: list[str], root: str, seconds: float) -> dict[str, Any]:
        """Be connected and have a receive posted, as one who waits for a chunk."""
        hello = Message(Kind.HELLO, Version(EPOCH, STEP, 0, root))
        links = [Link(Address.parse(text), hello, lambda _: None, lambda _: None) for text in sources]
        await asyncio.sleep(0.5)
        for link in links:
            link.receive(np.empty(8, np.uint8), NEVER_SENT_TAG, _nothing)
        await asyncio.sleep(1.5)
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        spent, took = time.process_time() - cpu, time.monotonic() - began
        for link in links:
            link.leave()
        await asyncio.gather(*(link.task for link in links), return_exceptions=True)
        return {"cpu_seconds": spent, "seconds": took}


async def _nothing() -> None:
    pass


async def main() -> None:
    ucx.start()
    node, loop = Node(), asyncio.get_running_loop()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        answer = await getattr(node, command.pop("do"))(**command)
        print(json.dumps(answer), flush=True)
    os._exit(0)  # peers may be dead or stopped; nothing is left that must be closed in order


if __name__ == "__main__":
    asyncio.run(main())
