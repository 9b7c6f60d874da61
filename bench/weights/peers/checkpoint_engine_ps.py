"""checkpoint-engine: the ParameterServer's update between two ranks. It is built for GPUs, and this asks whether it
does anything without one."""

from __future__ import annotations

import os
import socket
import sys
import time

import torch
from bytes_of import empty, ready, report, weights
from checkpoint_engine.ps import ParameterServer

PACKAGES = ("numpy", "checkpoint-engine[p2p]")


def server(rank: int, port: int) -> ParameterServer:
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    return ParameterServer(rank=rank, world_size=2)


def send(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ready(port)
    ps = server(0, port)
    ps.register_checkpoint("weights", named_tensors={"weights": torch.from_numpy(weights(size))})
    ps.init_process_group()
    while True:
        ps.gather_metas("weights")
        ps.update("weights", lambda _: None)


def receive(size: int, word: str, runs: int) -> None:
    target = empty(size)
    ps = server(1, int(word))
    ps.register_checkpoint("weights", named_tensors={})
    ps.init_process_group()

    def fetch() -> float:
        began = time.perf_counter()
        ps.gather_metas("weights")
        ps.update("weights", lambda _: None)
        return time.perf_counter() - began

    report(fetch, target, runs)


if __name__ == "__main__":
    send(int(sys.argv[2])) if sys.argv[1] == "send" else receive(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
