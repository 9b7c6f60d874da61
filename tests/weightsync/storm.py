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
import struct
import sys
import time
from typing import Any

from weightsync import ucx
from weightsync.transport import Address, Connection, TransportError

CHUNK = 512 * 1024
DATA = random.Random(1).randbytes(64 * CHUNK)
REQUEST = struct.Struct("<QQ")
REQUEST_TAG = 1


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


class Source:
    """Sends the chunk that was asked for, with the tag that was asked for."""

    def __init__(self) -> None:
        self._serving: list[asyncio.Task[None]] = []
        self._listener = ucx.start().create_listener(self._accept)
        self.port: int = self._listener.port

    async def _accept(self, endpoint: Any) -> None:
        self._serving.append(asyncio.create_task(self._serve(Connection(endpoint))))

    async def _serve(self, connection: Connection) -> None:
        request = bytearray(REQUEST.size)
        with contextlib.suppress(TransportError):
            while True:
                await connection.receive(request, REQUEST_TAG, 3600)
                chunk, tag = REQUEST.unpack(request)
                await connection.send(memoryview(DATA)[chunk * CHUNK :][:CHUNK], tag, 5)


async def source(writing: int) -> None:
    serving = Source()
    os.write(writing, str(serving.port).encode())
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
    left = iter(range(len(DATA) // CHUNK))
    one_at_a_time = asyncio.Lock()

    async def lane() -> None:
        for chunk in left:
            place = bytearray(CHUNK)
            tag = REQUEST_TAG + 1 + chunk
            arriving = asyncio.create_task(connection.receive(place, tag, seconds))
            async with one_at_a_time:
                await connection.send(REQUEST.pack(chunk, tag), REQUEST_TAG, seconds)
            await arriving
            if place != DATA[chunk * CHUNK :][:CHUNK]:
                raise SystemExit("other bytes arrived than were sent")

    lanes = [asyncio.create_task(lane()) for _ in range(2)]
    try:
        await asyncio.gather(*lanes)
    finally:
        for each in lanes:
            each.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
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
    loop = asyncio.get_running_loop()
    ends = dict.fromkeys(("whole", "failed", "cut off"), 0)
    while time.monotonic() < until:
        source_pid, port = await asyncio.to_thread(peers.start)
        client_pid, _ = await asyncio.to_thread(peers.start, own.port)
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
