"""What two processes of this machine move between them, with the profile that pulls would use.

`python -m weightsync.selftest` is the sending one; `measure` the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weightsync import ucx
from weightsync.manifest import digest_of
from weightsync.memory import HostMemory
from weightsync.transport import Address, Connection

MESSAGE_BYTES = 16 << 20
MESSAGES = 16
ROUNDS = 5
SECONDS = 30.0
BEST_FIRST = ("cuda_ipc", "rc", "dc", "cma", "sysv", "posix", "tcp")
LANES = 2
READY_TAG, FIRST_DATA_TAG = 1, 2


@dataclass(frozen=True)
class Measured:
    """The outcome: the median of some rounds, verification included."""

    bytes_per_second: float
    active: str
    """The transport that carried the bytes."""
    loaded: tuple[str, ...]
    """Those that UCX has at hand."""


class SelfTestFailed(Exception):
    """The two processes did not get their bytes across."""


def measure() -> Measured:
    """Run it, in two processes other than this one. Takes a second or two.

    Raises:
        SelfTestFailed: it did not work.
    """
    sender = _start("send")
    try:
        assert sender.stdout
        receiver = _start("receive", sender.stdout.readline().strip())
        output, errors = receiver.communicate(timeout=SECONDS + 10)
        found = json.loads(output.rpartition("{")[1] + output.rpartition("{")[2])
        return Measured(found["bytes_per_second"], active_in(output), tuple(found["loaded"]))
    except (ValueError, KeyError, subprocess.TimeoutExpired) as error:
        raise SelfTestFailed(errors.strip() if isinstance(error, ValueError) else str(error)) from error
    finally:
        sender.kill()
        sender.communicate()


def _start(*words: str) -> subprocess.Popen[str]:
    told = {"UCX_PROTO_INFO": "y"} if words[0] == "receive" else {}
    return subprocess.Popen(
        [sys.executable, "-m", "weightsync.selftest", *words], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **told},
    )  # fmt: skip


def active_in(proto_info: str) -> str:
    """Which transport carries large messages, from what UCX prints under UCX_PROTO_INFO=y; empty if it does not say.

    It prints a table for each way to each peer, also for ways that it then leaves for a better one.
    """
    named = set(re.findall(r"\.\.inf \|[^|]*\| *([a-z0-9_]+)/", proto_info))
    return next((name for kind in BEST_FIRST for name in sorted(named) if name.startswith(kind)), "")


async def send() -> None:
    """Listen, and send the same messages to whoever says that it is ready."""
    data = np.random.default_rng(1).integers(0, 256, MESSAGE_BYTES, np.uint8)
    serving: list[asyncio.Task[None]] = []

    async def serve(connection: Connection) -> None:
        while True:
            await connection.receive(bytearray(1), READY_TAG, SECONDS)
            await _in_lanes(lambda tag: connection.send(data, tag, SECONDS))

    async def accept(endpoint: Any) -> None:
        serving.append(asyncio.create_task(serve(Connection(endpoint))))

    listener = ucx.start().create_listener(accept)
    print(listener.port, digest_of(data.data), flush=True)
    await asyncio.sleep(SECONDS)


async def receive(port: int, digest: str) -> dict[str, object]:
    """Measure some rounds; the first warms up and does not count."""
    connection = await Connection.open(Address("127.0.0.1", port))
    rates = [await _one_round(connection, digest) for _ in range(ROUNDS + 1)][1:]
    loaded = sorted(ucx.start().get_active_transports())
    return {"bytes_per_second": statistics.median(rates), "loaded": loaded}


async def _one_round(connection: Connection, digest: str) -> float:
    """Bytes per second; one buffer is verified while the other fills."""
    memory = HostMemory(bytearray(LANES * MESSAGE_BYTES))

    async def receive_one(tag: int) -> None:
        buffer = memory.piece(tag % LANES * MESSAGE_BYTES, MESSAGE_BYTES)
        await connection.receive(buffer, tag, SECONDS)
        if await memory.digest(buffer) != digest:
            raise SelfTestFailed("what arrived is not what was sent")

    began = time.perf_counter()
    await connection.send(bytearray(1), READY_TAG, SECONDS)
    await _in_lanes(receive_one)
    return MESSAGES * MESSAGE_BYTES / (time.perf_counter() - began)


async def _in_lanes(one: Callable[[int], Awaitable[None]]) -> None:
    """Every message, two at a time."""

    async def lane(number: int) -> None:
        for message in range(number, MESSAGES, LANES):
            await one(FIRST_DATA_TAG + message)

    await asyncio.gather(*(lane(number) for number in range(LANES)))


async def main() -> None:
    if sys.argv[1] == "send":
        await send()
    else:
        port, digest = sys.argv[2].split()
        print(json.dumps(await receive(int(port), digest)), flush=True)


if __name__ == "__main__":
    code = 1
    try:
        asyncio.run(main())
        code = 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(code)  # UCXX's helper threads would keep the process
