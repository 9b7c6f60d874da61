"""Reference: torch.distributed send and recv over gloo, in chunks of 16 MiB. No verification."""

from __future__ import annotations

import socket
import sys
import time

import torch
import torch.distributed as dist
from bytes_of import empty, ready, report, weights

PACKAGES = ("numpy", "torch")
CHUNK = 16 << 20


def join(rank: int, port: int) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


def send(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ready(port)
    join(0, port)
    data, asked = torch.from_numpy(weights(size)), torch.zeros(1)
    while True:
        dist.recv(asked, 1)
        for part in data.split(CHUNK):
            dist.send(part, 1)


def receive(size: int, word: str, runs: int) -> None:
    join(1, int(word))
    target = empty(size)
    parts, asked = torch.from_numpy(target).split(CHUNK), torch.zeros(1)

    def fetch() -> float:
        began = time.perf_counter()
        dist.send(asked, 0)
        for part in parts:
            dist.recv(part, 0)
        return time.perf_counter() - began

    report(fetch, target, runs)


if __name__ == "__main__":
    send(int(sys.argv[2])) if sys.argv[1] == "send" else receive(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
