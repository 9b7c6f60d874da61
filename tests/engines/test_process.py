"""The engine as the supervisor runs it: its own process, cold or forked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

_FORK = """
import os, sys, time
import torch, sort4.model
from robustrl.engines.embedded.__main__ import main
pid = os.fork()
if pid == 0:
    os._exit(main(sys.argv[1:]))
print(time.time(), flush=True)
os.waitpid(pid, 0)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_ready(port: int, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                assert answer.status == 200
                return
        except OSError:
            time.sleep(0.01)
    raise AssertionError("the engine did not come up")


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def test_sigterm_ends_it_at_once(environment):
    port = free_port()
    command = [sys.executable, "-m", "robustrl.engines.embedded", "--model", "sort4.model:build_model"]
    process = subprocess.Popen([*command, "--port", str(port)], env=environment)
    try:
        wait_ready(port)
        began = time.monotonic()
        process.terminate()
        assert process.wait(timeout=5) == -signal.SIGTERM
        assert time.monotonic() - began < 0.5
    finally:
        process.kill()


def test_it_runs_in_a_fork_of_a_warm_interpreter_and_starts_within_a_second(environment):
    port = free_port()
    arguments = ["--model", "sort4.model:build_model", "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-c", _FORK, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        forked = float(process.stdout.readline())
        wait_ready(port)
        assert time.time() - forked < 1.0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_a_model_that_does_not_import_is_a_configuration_error(environment):
    command = [sys.executable, "-m", "robustrl.engines.embedded", "--model", "no_such_module:build"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "no_such_module" in done.stderr
