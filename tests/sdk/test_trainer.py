"""Joining an epoch: how long the agent and the other ranks are waited for."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from robustrl.sdk.agent_link import AgentLink
from robustrl.sdk.trainer import trainer
from robustrl.sdk.worker_config import WORKER_CONFIG_ENV, WorkerConfig

LONG_SECONDS = 1200.0


class Agent:
    """Answers each question with the path of a checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    if json.loads(line)["op"] == "restore":
                        lines.write('{"path": "/copies/7"}\n')
                        lines.flush()

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "agent")
    yield agent
    agent.close()


class SlowSocket(socket.socket):
    """What is read from it comes after `LONG_SECONDS`, by which a shorter limit has run out."""

    def recv_into(self, *arguments: Any) -> int:
        limit = self.gettimeout()
        if limit is not None and limit < LONG_SECONDS:
            raise TimeoutError("timed out")
        return super().recv_into(*arguments)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustrl.sdk.agent_link.socket.socket", SlowSocket)


@pytest.mark.usefixtures("slow")
def test_a_checkpoint_may_take_as_long_as_storage_needs_for_it(agent: Agent) -> None:
    assert AgentLink(str(agent.path), 0).ask("restore") == {"path": "/copies/7"}


@pytest.mark.parametrize(
    ("lease", "least"),
    [
        pytest.param(900.0, 900.0, id="the default lease"),
        pytest.param(7200.0, 7200.0, id="storage is slow, and the user says so"),
        pytest.param(30.0, 600.0, id="a short lease says nothing of the waits in a phase without one"),
    ],
)
def test_a_peer_is_waited_for_until_its_lease_has_run_out(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, lease: float, least: float
) -> None:
    """The operator ends one that takes longer; so it goes first."""
    config = WorkerConfig(
        job="j", pod="p", epoch=2, rank=0, world_size=2, local_rank=0, rendezvous="10.0.0.1:29502",
        agent_socket=str(agent.path), memory_dir="/m", steps=9, seed=0, phase_lease_seconds=lease,
    )  # fmt: skip
    told: dict[str, Any] = {}
    monkeypatch.setenv(WORKER_CONFIG_ENV, config.model_dump_json())
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **words: told.update(words))
    with trainer():
        pass
    assert least <= told["timeout"].total_seconds() <= least + 120
