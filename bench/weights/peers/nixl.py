"""NIXL: the receiver reads the sender's registered memory through its UCX backend. No verification."""

from __future__ import annotations

import base64
import os
import sys
import time
from pathlib import Path

import numpy as np

HERE = str(Path(__file__).parent)
sys.path[:] = [entry for entry in sys.path if entry != HERE]  # this file has the package's name
from nixl._api import nixl_agent, nixl_agent_config  # noqa: E402

sys.path.append(HERE)
from bytes_of import empty, ready, report, weights  # noqa: E402

PACKAGES = ("numpy", "nixl")
CHUNK = 16 << 20
POLL_SECONDS = 0.0005


def agent_with(name: str, array: np.ndarray) -> tuple[nixl_agent, list[tuple[int, int, int]]]:
    """An agent, and the chunks of the memory that it has registered."""
    agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    start, size = array.ctypes.data, array.nbytes
    agent.register_memory([(start, size, 0, "")], "DRAM")
    return agent, [(start + offset, min(CHUNK, size - offset), 0) for offset in range(0, size, CHUNK)]


def send(size: int) -> None:
    data = weights(size)
    agent, regions = agent_with("sender", data)
    descriptors = agent.get_serialized_descs(agent.get_xfer_descs(regions, "DRAM"))
    words = (base64.b64encode(part).decode() for part in (agent.get_agent_metadata(), descriptors))
    ready(",".join(words))
    while True:
        time.sleep(1)


def receive(size: int, word: str, runs: int) -> None:
    target = empty(size)
    agent, regions = agent_with("receiver", target)
    metadata, descriptors = (base64.b64decode(part) for part in word.split(","))
    sender = agent.add_remote_agent(metadata)
    local, remote = agent.get_xfer_descs(regions, "DRAM"), agent.deserialize_descs(descriptors)

    def fetch() -> float:
        began = time.perf_counter()
        transfer = agent.initialize_xfer("READ", local, remote, sender)
        state = agent.transfer(transfer)
        while state not in ("DONE", "ERR"):
            time.sleep(POLL_SECONDS)
            state = agent.check_xfer_state(transfer)
        if state == "ERR":
            raise SystemExit("NIXL says ERR")
        agent.release_xfer_handle(transfer)
        return time.perf_counter() - began

    report(fetch, target, runs)
    # Its agent crashes while the interpreter is torn down (SIGSEGV, nixl 1.5), which says nothing of the transfer.
    os._exit(0)


if __name__ == "__main__":
    send(int(sys.argv[2])) if sys.argv[1] == "send" else receive(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
