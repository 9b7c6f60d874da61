"""Real processes: embedded engines and the managers, killed while they work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest

STEPS, PROMPTS, SAMPLES = 4, 4, 4


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Cell:
    """Processes by name, and the HTTP calls that agents and trainers make."""

    session: aiohttp.ClientSession
    environment: dict[str, str]
    manager_port: int = field(default_factory=free_port)
    engine_ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)
    agents: list[asyncio.Task] = field(default_factory=list)
    version: str = "0.0"

    def start_manager(self) -> None:
        self.processes["manager"] = subprocess.Popen([sys.executable, "-m", "robustrl.managers"], env=self.environment)

    def start_engine(self, pod: str) -> None:
        self.engine_ports[pod] = free_port()
        command = [sys.executable, "-m", "robustrl.engines.embedded", "--model", "sort4.model:build_model"]
        command += ["--weight-version", "0.0", "--port", str(self.engine_ports[pod])]
        self.processes[pod] = subprocess.Popen(command, env=self.environment)
        self.agents.append(asyncio.create_task(self._agent(pod)))

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    async def call(self, method: str, path: str, **body: object) -> tuple[int, dict | None]:
        """As the SDK does: as often as the managers are away."""
        url = f"http://127.0.0.1:{self.manager_port}{path}"
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with self.session.request(method, url, json=body) as response:
                        return response.status, await response.json() if response.status != 204 else None
                await asyncio.sleep(0.05)

    async def slow_down(self, pod: str, seconds: float) -> None:
        url = f"http://127.0.0.1:{self.engine_ports[pod]}/slow_down"
        async with self.session.post(url, json={"forward_sleep_time": seconds}) as response:
            assert response.status == 200

    async def ready(self, pod: str) -> None:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with self.session.get(f"http://127.0.0.1:{self.engine_ports[pod]}/ready") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(0.05)

    async def train(self, epoch: int, step: int) -> None:
        status, batch = 204, None
        while status == 204:
            status, batch = await self.call("POST", f"/v1/batches/{step}", epoch=epoch, rank=0, world_size=1)
        assert status == 200, batch
        assert len(batch["trajectories"]) == PROMPTS * SAMPLES
        assert (await self.call("POST", f"/v1/commits/{step}", epoch=epoch, batch=batch["batch"], digests={"0": "d"}))[
            0
        ] == 200

    async def progress(self) -> dict:
        return (await self.call("GET", "/v1/progress"))[1]

    async def _agent(self, pod: str) -> None:
        """The in-pod agent's part: say every so often that the engine is there, as long as its process is."""
        await self.ready(pod)
        url = f"http://127.0.0.1:{self.engine_ports[pod]}"
        while pod in self.processes:
            report = {"uid": pod, "url": url, "version": self.version, "state": "Serving"}
            await self.call("PUT", f"/v1/engines/{pod}", **report)
            await asyncio.sleep(0.2)


@pytest.fixture
async def cell(tmp_path) -> AsyncIterator[Cell]:
    config = {
        "ledger": str(tmp_path / "ledger.sqlite"),
        "host": "127.0.0.1",
        "port": 0,
        "prompts": "sort4.tasks:prompts",
        "rollout": "sort4.tasks:rollout",
        "promptsPerStep": PROMPTS,
        "samplesPerPrompt": SAMPLES,
        "steps": STEPS,
        "maxStaleness": STEPS,
        "concurrency": 16,
        "turnTimeoutSeconds": 5,
    }
    async with aiohttp.ClientSession() as session:
        cell = Cell(session, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"})
        config["port"] = cell.manager_port
        cell.environment["ROBUSTRL_MANAGER_CONFIG"] = json.dumps(config)
        cell.start_manager()
        for pod in ("r-0", "r-1"):
            cell.start_engine(pod)
        for pod in ("r-0", "r-1"):
            await cell.ready(pod)
            await cell.slow_down(pod, 0.05)
        yield cell
        for agent in cell.agents:
            agent.cancel()
        await asyncio.gather(*cell.agents, return_exceptions=True)
        for name in list(cell.processes):
            cell.kill(name)


async def everything_was_trained_once(cell: Cell) -> None:
    audit = (await cell.call("GET", "/v1/audit"))[1]
    assert audit["ok"], audit
    assert audit["trajectories"]["consumed"] == STEPS * PROMPTS * SAMPLES
    assert audit["trajectories"]["running"] == audit["trajectories"]["discarded"] == 0


async def begin(cell: Cell) -> None:
    """Let the engines in, and return once both are in the middle of it."""
    while len((await cell.progress())["engines"]) < 2:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)
    await cell.call("PUT", "/v1/versions", epoch=0, step=0, root="")
    while (await cell.progress())["tokens_total"] < 20:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)


@pytest.mark.timeout(120)
async def test_an_engine_killed_at_work_costs_no_trajectory(cell):
    await begin(cell)
    cell.kill("r-0")
    for step in range(STEPS):
        await cell.train(0, step)
    assert (await cell.progress())["rerouted_total"] > 0
    await everything_was_trained_once(cell)


@pytest.mark.timeout(120)
async def test_managers_killed_at_work_lose_nothing(cell):
    await begin(cell)
    cell.kill("manager")
    cell.start_manager()
    await cell.train(0, 0)
    cell.kill("manager")
    cell.start_manager()
    assert (await cell.progress())["step"] == 1
    for step in range(1, STEPS):
        await cell.train(0, step)
    await everything_was_trained_once(cell)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("", "Invalid JSON"),
        ('{"ledger": "/tmp/x", "prompts": "sort4.tasks:prompts"}', "rollout: Field required"),
        ('{"ledger": "/tmp/x", "prompts": "sort4.tasks:prompts", "rollout": "sort4.tasks:absent"}', "absent"),
        ('{"ledger": "/tmp/x", "prompts": "no.such:prompts", "rollout": "sort4.tasks:rollout"}', "No module named"),
        ('{"ledger": "/tmp/x", "prompts": "sort4.tasks:prompts", "rollout": "sort4.tasks:reward"}', "must be an async"),
    ],
)
def test_a_configuration_that_cannot_work_ends_with_78_and_says_why(config, text):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ROBUSTRL_MANAGER_CONFIG": config}
    command = [sys.executable, "-m", "robustrl.managers"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert text in done.stderr


def test_a_ledger_that_cannot_be_opened_now_is_tried_again_by_the_agent(tmp_path):
    """Its volume may come back: that ends no job."""
    functions = {"prompts": "sort4.tasks:prompts", "rollout": "sort4.tasks:rollout"}
    config = json.dumps({"ledger": f"{tmp_path}/away/l", **functions})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ROBUSTRL_MANAGER_CONFIG": config}
    command = [sys.executable, "-m", "robustrl.managers"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"robustrl.managers: the ledger {tmp_path}/away/l cannot be opened")
