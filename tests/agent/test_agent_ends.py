"""An agent that fails ends: its container begins anew, and nobody waits for one that only seems to be there."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustrl_api.names import Role
from robustrl_api.pod_config import POD_CONFIG_ENV, PodConfig


def environment(folder: Path, weight_port: int, agent_port: int) -> dict[str, str]:
    config = PodConfig(
        job="j", namespace="n", role=Role.ROLLOUT, control_url="http://127.0.0.1:1", memory_dir=str(folder),
        steps=1, weight_port=weight_port, agent_port=agent_port, warm_worker=True,
    )  # fmt: skip
    return os.environ | {
        POD_CONFIG_ENV: config.model_dump_json(by_alias=True),
        "ROBUSTRL_POD_NAME": "j-rollout-0",
        "ROBUSTRL_POD_IP": "127.0.0.1",
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_an_agent_whose_port_is_taken_ends_and_names_it(tmp_path: Path) -> None:
    """Threads of UCX's and of its child processes kept it for ever, silent, and its container with it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] - 1
        program = [sys.executable, "-m", "robustrl.supervisor.cli", "run"]
        done = subprocess.run(
            program, env=environment(tmp_path, port, free_port()), capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1, done.stderr
    assert f"port {port + 1}" in done.stderr


def end(agent: subprocess.Popen[bytes], port: int) -> str:
    """Tell an agent to end once it listens, and wait until it has; what it said."""
    try:
        while agent.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        agent.send_signal(signal.SIGTERM)
        return agent.communicate(timeout=30)[1].decode()
    finally:
        agent.kill()


HANGING = """
import asyncio, time
from robustrl.checkpoint.archive import Archive
from robustrl.supervisor import cli
from weightsync import transport

async def flush(self):
    asyncio.create_task(asyncio.to_thread(time.sleep, 3600))
    await asyncio.sleep(0.1)

Archive.flush = flush
if {ucx_hangs}:
    transport.start = lambda: time.sleep(3600)
cli.main()
"""


@pytest.mark.parametrize("ucx_hangs", [False, True], ids=["storage", "storage and UCX"])
def test_an_agent_that_is_told_to_end_does_whatever_hangs(tmp_path: Path, ucx_hangs: bool) -> None:
    port = free_port()
    program = [sys.executable, "-c", HANGING.format(ucx_hangs=ucx_hangs), "run"]
    agent = subprocess.Popen(program, env=environment(tmp_path, free_port() - 1, port), stderr=subprocess.PIPE)
    errors = end(agent, port)
    assert agent.returncode == 0, errors


FAILING = """
from robustrl.checkpoint.archive import Archive
from robustrl.supervisor import cli
from robustrl.supervisor.harm import Striker

async def close(self):
    raise OSError(28, "No space left on device")

async def flush(self):
    open({marker!r}, "w").close()

Striker.close, Archive.flush = close, flush
cli.main()
"""


def test_checkpoints_are_handed_over_though_something_else_cannot_be_closed(tmp_path: Path) -> None:
    port, marker = free_port(), tmp_path / "flushed"
    program = [sys.executable, "-c", FAILING.format(marker=str(marker)), "run"]
    agent = subprocess.Popen(program, env=environment(tmp_path, free_port() - 1, port), stderr=subprocess.PIPE)
    end(agent, port)
    assert marker.exists()
