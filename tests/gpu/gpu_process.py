"""One end of a transfer from GPU to GPU: `python gpu_process.py send SIZE`, or `receive PORT SIZE`; with the whole
library, `publish SIZE`, or `pull PORT ROOT SIZE`.

The sender fills its tensor on a stream that is busy for a while, so that bytes which left too early would be others.
The receiver prints, as JSON, whether all rounds were exact, their rates, and the device's own rate of copying.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

import torch

from weightsync import Address, Source, fetch_manifest, pull, ucx
from weightsync.device import DeviceMemory, Staging, seal
from weightsync.transport import Connection

ROUNDS = 8
BUSY_MATRIX = 4096
ASK_TAG, DATA_TAG = 1, 2
SECONDS = 60.0


def pattern(size: int, number: int) -> Any:
    """Round `number`'s bytes, made on the current stream."""
    generator = torch.Generator(device="cuda").manual_seed(number)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda", generator=generator)


def keep_busy() -> None:
    """Give the current stream some milliseconds of work."""
    a = torch.ones(BUSY_MATRIX, BUSY_MATRIX, device="cuda")
    for _ in range(20):
        a = a @ a / BUSY_MATRIX


async def send(size: int) -> None:
    staging, tensor = Staging(size), torch.zeros(size, dtype=torch.uint8, device="cuda")
    serving: list[asyncio.Task[None]] = []

    async def serve(connection: Connection) -> None:
        for number in range(ROUNDS):
            await connection.receive(bytearray(1), ASK_TAG, SECONDS)
            with torch.cuda.stream(torch.cuda.Stream()):
                keep_busy()
                tensor.copy_(pattern(size, number))
                part = await staging.take_in(tensor)
            await connection.send(part, DATA_TAG + number, SECONDS)
        await connection.receive(bytearray(1), ASK_TAG, SECONDS)

    async def accept(endpoint: Any) -> None:
        serving.append(asyncio.create_task(serve(Connection(endpoint))))

    listener = ucx.start(gpu_memory=True).create_listener(accept)
    print(listener.port, flush=True)
    await asyncio.sleep(SECONDS)


async def receive(port: int, size: int) -> dict[str, object]:
    ucx.start(gpu_memory=True)
    staging, tensor = Staging(size), torch.zeros(size, dtype=torch.uint8, device="cuda")
    connection = await Connection.open(Address("127.0.0.1", port))
    exact, rates = True, []
    for number in range(ROUNDS):
        await connection.send(bytearray(1), ASK_TAG, SECONDS)
        await asyncio.sleep(0.3)  # the sender is ready by then, so that the transfer alone is timed
        began = time.perf_counter()
        await connection.receive(staging.array, DATA_TAG + number, SECONDS)
        rates.append(size / (time.perf_counter() - began))
        await staging.hand_out(tensor)
        exact &= bool(torch.equal(tensor, pattern(size, number)))
    await connection.send(bytearray(1), ASK_TAG, SECONDS)
    return {
        "exact": exact, "bytes_per_second": statistics.median(rates[1:]), "device_bytes_per_second": device_rate(size),
        "transports": sorted(ucx.start().get_active_transports()),
    }  # fmt: skip


async def publish(size: int) -> None:
    """A version in GPU memory, served."""
    ucx.start(gpu_memory=True)
    weights = pattern(size, 1)
    torch.cuda.synchronize()
    memory = DeviceMemory(weights)
    manifest = await seal(memory, epoch=1, step=1)
    source = Source()
    port = await source.start()
    source.hold(manifest, memory, publisher=True)
    print(port, manifest.root, flush=True)
    await asyncio.sleep(SECONDS)


async def pull_into_gpu(port: int, root: str, size: int) -> dict[str, object]:
    ucx.start(gpu_memory=True)
    address = Address("127.0.0.1", port)
    manifest = await fetch_manifest(address, epoch=1, step=1, shard=0, root=root)
    target = torch.zeros(size, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(ROUNDS):
        target.zero_()
        torch.cuda.synchronize()
        stats = await pull(manifest, [address], DeviceMemory(target))
        rates.append(size / stats.seconds)
    return {"exact": bool(torch.equal(target, pattern(size, 1))), "bytes_per_second": statistics.median(rates[1:])}


def device_rate(size: int) -> float:
    """Bytes per second that this device copies within itself."""
    here, there = (torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    took = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        there.copy_(here)
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end) / 1e3)
    return size / statistics.median(took)


if __name__ == "__main__":
    code = 1
    try:
        what, *words = sys.argv[1:]
        if what == "send":
            asyncio.run(send(int(words[0])))
        elif what == "publish":
            asyncio.run(publish(int(words[0])))
        elif what == "pull":
            print(json.dumps(asyncio.run(pull_into_gpu(int(words[0]), words[1], int(words[2])))), flush=True)
        else:
            print(json.dumps(asyncio.run(receive(int(words[0]), int(words[1])))), flush=True)
        code = 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(code)
