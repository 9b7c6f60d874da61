"""Pulls and serves while peers die, hang and are cut off: `python storm.py connects|deaths SEED SECONDS`.

Ends with 0 and a line of figures, unless UCX takes it down. Peers are forked from a process that has imported UCXX and
not started it, so that hundreds of them fit into a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time

from tests.weightsync.source_process import sealed

from weightsync import Address, Source, ucx
from weightsync.session import Session
from weightsync.transport import Connection, TransportError
from weightsync.wire import Operation

MANIFEST, DATA = sealed(1, 32 << 20, 1, 1)


class Peers:
    """Forks peers; knows them by their process id."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            fork_on_demand(theirs)
        theirs.close()
        self._asks = ours.makefile("rw")

    def start(self, port: int = 0) -> tuple[int, int]:
        """A source, or a client of the source at `port`. Its process id and its port."""
        self._asks.write(f"{port}\n")
        self._asks.flush()
        pid, its_port = self._asks.readline().split()
        return int(pid), int(its_port)


def fork_on_demand(asks: socket.socket) -> None:
    os.setsid()  # a group of its own, which ends with the process that asks
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    lines = asks.makefile("rw")
    for line in lines:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                asyncio.run(client(int(line), writing) if int(line) else source(writing))
            os._exit(1)
        os.close(writing)
        lines.write(f"{pid} {os.read(reading, 16).decode()}\n")
        lines.flush()
        os.close(reading)
    os.killpg(0, signal.SIGKILL)


async def source(writing: int) -> None:
    serving = Source()
    port = serving.start()
    serving.hold(MANIFEST, DATA)
    os.write(writing, str(port).encode())
    os.close(writing)
    await asyncio.Event().wait()


async def client(port: int, writing: int) -> None:
    ucx.start()
    os.write(writing, b"0")
    os.close(writing)
    while True:
        with contextlib.suppress(TransportError):
            await fetch_all(port, 5)


async def fetch_all(port: int, seconds: float) -> None:
    """All chunks, two at a time."""
    connection = await Connection.open(Address("127.0.0.1", port), seconds)
    session = Session(connection, 1, 1, 0, MANIFEST.root)
    left = iter(range(len(MANIFEST.chunks)))

    async def lane() -> None:
        staging = bytearray(MANIFEST.chunks[0].size_bytes)
        for chunk in left:
            await session.ask(Operation.CHUNK, chunk, staging, seconds)

    try:
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(lane())
            lanes.create_task(lane())
    except* TransportError as errors:
        raise errors.exceptions[0] from None
    finally:
        await connection.close()


async def connects(peers: Peers, rng: random.Random, until: float) -> str:
    """Connects cancelled at every moment of the handshake."""
    _, port = await asyncio.to_thread(peers.start)
    cancelled = made = 0
    while time.monotonic() < until:
        try:
            async with asyncio.timeout(rng.uniform(0, 0.04)):
                connection = await Connection.open(Address("127.0.0.1", port))
            made += 1
            await connection.close()
        except (TimeoutError, TransportError):
            cancelled += 1
        # What UCX would write to, had its buffers been freed.
        litter = [bytearray(16) for _ in range(200)]
        await asyncio.sleep(0.003)
        if any(any(piece) for piece in litter):
            raise SystemExit("memory that nobody wrote to has changed")
    return f"{made} connections, {cancelled} cut off"


async def deaths(peers: Peers, rng: random.Random, until: float) -> str:
    """Sources and clients that are killed and stopped in the middle of transfers, and transfers cut off."""
    own = Source()
    own_port = own.start()
    own.hold(MANIFEST, DATA)
    loop = asyncio.get_running_loop()
    ends = dict.fromkeys(("whole", "failed", "cut off"), 0)
    while time.monotonic() < until:
        source_pid, port = await asyncio.to_thread(peers.start)
        client_pid, _ = await asyncio.to_thread(peers.start, own_port)
        with contextlib.suppress(TransportError):
            await (await Connection.open(Address("127.0.0.1", port))).close()  # it is well up by then
        for pid in (source_pid, client_pid):
            loop.call_later(rng.uniform(0.005, 0.06), os.kill, pid, rng.choice([signal.SIGKILL, signal.SIGSTOP]))
        end = "whole"
        try:
            async with asyncio.timeout(rng.choice([0.05, 5])):
                await fetch_all(port, 0.3)
        except TransportError:
            end = "failed"
        except TimeoutError:
            end = "cut off"
        ends[end] += 1
        await asyncio.sleep(0.07)
        for pid in (source_pid, client_pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return str(ends)


async def main() -> None:
    kind, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    peers = Peers()
    try:
        storm = {"connects": connects, "deaths": deaths}[kind]
        print(await storm(peers, random.Random(seed), time.monotonic() + seconds), flush=True)
    finally:
        ucx.stop()


if __name__ == "__main__":
    ucx.start()  # imports, before the first fork; nothing of UCX runs until it is used
    asyncio.run(main())
