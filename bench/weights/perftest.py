"""The limit: what UCX itself moves between two processes, by its own `ucx_perftest -t tag_bw -e`."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

WARM_UP = 5
DEADLINE_SECONDS = 120
LISTEN_SECONDS = 60.0
LISTENS = "0A"
"""The state of a socket that does, in the kernel's table."""


def rate(env: Mapping[str, str], message_bytes: int, total_bytes: int) -> float:
    """Bytes per second in one direction, in messages of this size, with error handling, as the library has it.

    Raises:
        RuntimeError: it fails or does not end.
    """
    spec = find_spec("libucx")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("no libucx in this environment: install the extra 'ucx'")
    root = Path(spec.submodule_search_locations[0])
    plain = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    environment = {**plain, **env, "LD_LIBRARY_PATH": str(root / "lib")}
    port = _free_port()
    command = [str(root / "bin/ucx_perftest"), "-p", str(port)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_listening(server, port)
        count = max(10, total_bytes // message_bytes)
        sizes = ["-s", str(message_bytes), "-n", str(count), "-w", str(WARM_UP)]
        done = subprocess.run(
            [*command, "127.0.0.1", "-t", "tag_bw", "-e", "-f", *sizes],
            env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
        )  # fmt: skip
        return _overall_megabytes(done.stdout) * 1e6 * 1.048576
    except (ValueError, IndexError) as error:
        said = (done.stdout + done.stderr).strip()[-500:]
        raise RuntimeError(f"ucx_perftest ended with {done.returncode}: {said}") from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"ucx_perftest failed: {error}") from error
    finally:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _await_listening(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the server listens. It is not connected to for that: it would take that for its client.

    Raises:
        RuntimeError: it does not, in time.
    """
    deadline = time.monotonic() + LISTEN_SECONDS
    while not _listens(port):
        if server.poll() is not None:
            raise RuntimeError(f"ucx_perftest's server ended with {server.returncode} before it listened")
        if time.monotonic() > deadline:
            raise RuntimeError(f"ucx_perftest's server does not listen after {LISTEN_SECONDS:.0f} s")
        time.sleep(0.02)


def _listens(port: int) -> bool:
    """Whether there is a socket that listens on a port, on whatever address."""
    for name in ("tcp", "tcp6"):
        path = Path("/proc/net") / name
        sockets = [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []
        if any(each[1].endswith(f":{port:04X}") and each[3] == LISTENS for each in sockets):
            return True
    return False


def _overall_megabytes(output: str) -> float:
    """The overall bandwidth of its last line, in MiB/s: count, p50, average, overall latency, two bandwidths, rates."""
    return float(output.strip().splitlines()[-1].split()[5])
