"""Mooncake's transfer engine: the receiver reads the sender's registered segment over TCP. No verification."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

HERE = str(Path(__file__).parent)
sys.path[:] = [entry for entry in sys.path if entry != HERE]  # this file has the package's name
from mooncake.engine import TransferEngine  # noqa: E402

sys.path.append(HERE)
from bytes_of import empty, ready, report, weights  # noqa: E402

PACKAGES = ("numpy", "mooncake-transfer-engine-non-cuda")
CHUNK = 16 << 20


def engine_with(array: np.ndarray) -> TransferEngine:
    engine = TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""):
        raise SystemExit("TransferEngine.initialize failed")
    if engine.register_memory(array.ctypes.data, array.nbytes):
        raise SystemExit("register_memory failed")
    return engine


def send(size: int) -> None:
    data = weights(size)
    engine = engine_with(data)
    ready(f"127.0.0.1:{engine.get_rpc_port()},{data.ctypes.data}")
    while True:
        time.sleep(1)


def receive(size: int, word: str, runs: int) -> None:
    target = empty(size)
    engine = engine_with(target)
    sender, address = word.split(",")
    starts = range(0, size, CHUNK)
    here = [target.ctypes.data + start for start in starts]
    there = [int(address) + start for start in starts]
    lengths = [min(CHUNK, size - start) for start in starts]

    def fetch() -> float:
        began = time.perf_counter()
        if engine.batch_transfer_sync_read(sender, here, there, lengths):
            raise SystemExit("batch_transfer_sync_read failed")
        return time.perf_counter() - began

    report(fetch, target, runs)


if __name__ == "__main__":
    send(int(sys.argv[2])) if sys.argv[1] == "send" else receive(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
