"""torchstore: a storage volume (an actor in a process of its own) holds the tensor, this process gets it."""

from __future__ import annotations

import asyncio
import sys
import time

import torch
import torchstore as ts
from bytes_of import empty, ready, report, weights

PACKAGES = ("numpy", "torchstore")


def send(size: int) -> None:
    """Its volume is an actor that the receiver starts; there is nobody else to start."""
    ready("none")
    time.sleep(3600)


def receive(size: int, word: str, runs: int) -> None:
    loop = asyncio.new_event_loop()
    target = empty(size)
    loop.run_until_complete(ts.initialize())
    loop.run_until_complete(ts.put("weights", torch.from_numpy(weights(size))))
    place = torch.from_numpy(target)

    def fetch() -> float:
        began = time.perf_counter()
        loop.run_until_complete(ts.get("weights", place))
        return time.perf_counter() - began

    report(fetch, target, runs)


if __name__ == "__main__":
    send(int(sys.argv[2])) if sys.argv[1] == "send" else receive(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
