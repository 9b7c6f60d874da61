"""What comes into the process with UCX, and what it survives."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, os, sys
from weightsync import Source

async def main():
    await Source().start()
    await asyncio.sleep(1)  # the progress thread runs by then

asyncio.run(main())
print("GPU:", sorted(name for name in sys.modules if name.startswith(("cuda.", "pynvml"))))
sys.stdout.flush()
os._exit(0)
"""


def test_tcp_brings_no_library_for_gpus_into_the_agent() -> None:
    """They would cost it 33 MB, and a context in the memory of the user's GPU."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "GPU: []\n", done.stderr


@pytest.mark.parametrize(("kind", "seed", "seconds"), [("connects", 1, 12), ("deaths", 2, 25)])
def test_the_process_survives(kind: str, seed: int, seconds: int) -> None:
    """A peer's death in the middle of anything, and cutting anything off, costs a connection and never the process."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'weightsync'}"}
    program = [sys.executable, "-X", "faulthandler", str(ROOT / "tests/weightsync/storm.py"), kind, str(seed)]
    done = subprocess.run([*program, str(seconds)], env=environment, capture_output=True, text=True, timeout=90)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-4000:]


LISTENER = """
import asyncio, os, sys
from weightsync import Source

async def main():
    print(await Source().start(int(sys.argv[1])), flush=True)
    os._exit(0)

asyncio.run(main())
"""


def free_ports() -> int:
    """The first of two ports in a row that are free."""
    while True:
        with socket.socket() as words, socket.socket() as data:
            words.bind(("", 0))
            port = int(words.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                data.bind(("", port + 1))
                return port


def leave_in_time_wait(port: int) -> None:
    """A connection to this port whose server closed it first."""
    address = ("127.0.0.1", port)
    with socket.create_server(address) as listener, socket.create_connection(address) as client:
        listener.accept()[0].close()
        assert client.recv(1) == b""


def test_a_source_begins_again_where_connections_to_the_one_before_are_remembered() -> None:
    """An agent's container is started again in its pod within a second, and the kernel keeps the ports of connections
    that were closed for a minute."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    port = free_ports()
    leave_in_time_wait(port + 1)
    program = [sys.executable, "-c", LISTENER, str(port)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{port}\n", done.stderr
