"""What an agent costs: its memory once UCX is up, and the time from its start to its first report. Medians of 5 runs.

Targets: under 80 MB resident, under 1 s. Run it on a quiet machine: `python bench/agent_footprint.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from robustrl_api.control import Assignment
from robustrl_api.names import Role
from robustrl_api.pod_config import POD_CONFIG_ENV, PodConfig

RUNS = 5
TARGET_MEGABYTES, TARGET_SECONDS = 80, 1.0
PATIENCE_SECONDS = 120.0
SETTLE_SECONDS = 1.0


class Operator(ThreadingHTTPServer):
    """Notes when the first report comes and assigns nothing to do."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.first_report = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Operator
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.first_report.is_set():
            time.sleep(0.5)
        self.server.first_report.set()
        data = Assignment(etag="1", role=Role.ROLLOUT).model_dump_json(by_alias=True).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the agent has been ended meanwhile
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def measure() -> tuple[float, float, float]:
    """Seconds to the first report; megabytes once UCX is up, all and without files' pages, which pods may share."""
    operator = Operator()
    with tempfile.TemporaryDirectory() as folder:
        config = PodConfig(
            job="j", namespace="ns", role=Role.ROLLOUT, control_url=f"http://127.0.0.1:{operator.server_port}",
            agent_port=free_port(), weight_port=0, steps=1, memory_dir=folder, warm_worker=False,
        )  # fmt: skip
        env = {
            **os.environ, POD_CONFIG_ENV: config.model_dump_json(), "ROBUSTRL_POD_NAME": "p",
            "ROBUSTRL_POD_IP": "127.0.0.1",
        }  # fmt: skip
        log = Path(folder) / "agent.log"
        began = time.perf_counter()
        with log.open("w") as words:
            agent = subprocess.Popen([sys.executable, "-m", "robustrl.supervisor.cli", "run"], env=env, stderr=words)
        try:
            await_or_say(agent, log, operator.first_report.is_set, "report")
            seconds = time.perf_counter() - began
            return seconds, *resident_with_ucx(agent, log)
        finally:
            agent.send_signal(signal.SIGKILL)
            agent.wait()
            operator.shutdown()
            operator.server_close()


def await_or_say(agent: subprocess.Popen[bytes], log: Path, done: Callable[[], bool], what: str) -> None:
    """Wait until the agent has done something; else end with its last words."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if agent.poll() is not None or time.monotonic() > deadline:
            how = f"ended with {agent.returncode}" if agent.returncode is not None else f"took {PATIENCE_SECONDS:.0f} s"
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise SystemExit(f"the agent {how} and did not {what}; its last words:\n{last}")
        time.sleep(0.005)


def resident_with_ucx(agent: subprocess.Popen[bytes], log: Path) -> tuple[float, float]:
    maps = Path(f"/proc/{agent.pid}/maps")
    await_or_say(agent, log, lambda: "libuct" in maps.read_text(), "load UCX")
    time.sleep(SETTLE_SECONDS)
    lines = Path(f"/proc/{agent.pid}/status").read_text().splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS:", "RssAnon:"))}
    return kilobytes["VmRSS"] * 1024 / 1e6, kilobytes["RssAnon"] * 1024 / 1e6


def main() -> None:
    runs = [measure() for _ in range(RUNS)]
    seconds, megabytes, private = (statistics.median(column) for column in zip(*runs, strict=True))
    print(
        f"start to first report: {seconds:.2f} s (target {TARGET_SECONDS:.0f} s); {[f'{run[0]:.2f}' for run in runs]}"
    )
    print(f"resident, UCX up: {megabytes:.1f} MB (target {TARGET_MEGABYTES}), {private:.1f} MB of it no file's pages")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
