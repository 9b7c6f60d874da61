"""The life of a pod that is played by processes, where things happen in the middle of its start."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robustrl_api.names import Role
from robustrl_operator.local import pod_process
from robustrl_operator.local.pod_process import PodProcess


class Agent:
    """A process that runs until it is killed."""

    pid = 0

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def send_signal(self, number: signal.Signals) -> None:
        self.returncode = -number
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return self.returncode or 0


@pytest.fixture
def pod(tmp_path: Path) -> PodProcess:
    config: Any = None
    return PodProcess("p", Role.TRAINER, "127.0.0.1", config, tmp_path / "memory", tmp_path / "log", lambda: None)


def delete(pod: PodProcess) -> None:
    pod.deleting = True


@pytest.mark.parametrize("end", [delete, PodProcess.kill_node], ids=["deleted", "machine dead"])
async def test_a_pod_that_ends_while_its_agent_is_started_leaves_no_agent_behind(
    pod: PodProcess, end: Callable[[PodProcess], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent()

    async def start(_pod: PodProcess) -> Agent:
        pod.folder.mkdir()
        end(pod)
        pod.folder.mkdir(exist_ok=True)
        return agent

    monkeypatch.setattr(PodProcess, "_start", start)
    async with asyncio.timeout(5):
        await pod.live()
    assert agent.returncode == -signal.SIGKILL
    assert not pod.folder.exists()


async def test_an_agent_that_cannot_be_started_now_is_started_later(
    pod: PodProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod counted as running, without anything in it, and the log said nothing."""
    tries: list[int] = []

    async def start(_pod: PodProcess) -> Agent:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no space left on device")
        pod.deleting = True
        return Agent()

    monkeypatch.setattr(pod_process, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(PodProcess, "_start", start)
    async with asyncio.timeout(5):
        await pod.live()
    assert len(tries) == 2
