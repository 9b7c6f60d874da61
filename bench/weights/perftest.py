"""The limit: what UCX itself moves between two processes, by its own `ucx_perftest -t tag_bw -e`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

PORT = 13379
WARM_UP = 5
DEADLINE_SECONDS = 120


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
    command = [str(root / "bin/ucx_perftest"), "-p", str(PORT)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        count = max(10, total_bytes // message_bytes)
        words = [
            "127.0.0.1",
            "-t",
            "tag_bw",
            "-e",
            "-f",
            "-s",
            str(message_bytes),
            "-n",
            str(count),
            "-w",
            str(WARM_UP),
        ]
        done = subprocess.run(
            [*command, *words], env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
        return _overall_megabytes(done.stdout) * 1e6 * 1.048576
    except (ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"ucx_perftest failed: {error}") from error
    finally:
        server.kill()
        server.wait()


def _overall_megabytes(output: str) -> float:
    """The overall bandwidth of its last line, in MiB/s: count, p50, average, overall latency, two bandwidths, rates."""
    return float(output.strip().splitlines()[-1].split()[5])
