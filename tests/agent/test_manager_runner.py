"""When the managers' work stands still."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from robustrl.supervisor import manager_runner
from robustrl.supervisor.manager_runner import ManagerRunner
from robustrl.supervisor.managers_client import ManagersAway
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised, start_cold
from robustrl.supervisor.state import PodState
from robustrl_api.control import Assignment
from robustrl_api.names import Role
from robustrl_api.pod_config import ManagerConfig, PodConfig


class Managers:
    """They answer while they may; a call to those that hang goes on until it is given up from outside."""

    def __init__(self) -> None:
        self.url = ""
        self.answering = asyncio.Event()
        self.away = False
        self.calls = 0

    async def call(self, *_: object, **__: object) -> object:
        self.calls += 1
        if self.away:
            raise ManagersAway("refused")
        await self.answering.wait()
        return {}


class Launcher:
    async def launch(self, *_: object) -> Supervised:
        return await start_cold(["sleep", "60"], os.environ)


async def test_managers_stand_still_while_a_call_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_runner, "REFRESH_SECONDS", 0.01)
    managers, state, of_pod = Managers(), PodState("p", Role.MANAGER), config(tmp_path)
    memory = PodMemory(of_pod)
    memory.prepare()
    runner = ManagerRunner(of_pod, state, cast(Any, Launcher()), memory, cast(Any, managers), "h")
    managers.answering.set()
    await runner.start(Assignment(role=Role.MANAGER, epoch=1, run=True))
    try:
        await until(lambda: managers.calls > 4)
        assert state.activity.report().idle_text == ""
        managers.answering.clear()
        await until(lambda: state.activity.report().idle_text != "")
        calls = managers.calls
        await until(lambda: state.activity.report().idle_seconds > 0.1)
        assert managers.calls == calls, "the call that is under way is not given up for it"
        managers.answering.set()
        await until(lambda: state.activity.report().idle_text == "")
        managers.away = True
        await until(lambda: "do not answer: refused" in state.activity.report().idle_text)
    finally:
        await runner.stop()


def config(folder: Path) -> PodConfig:
    return PodConfig(
        job="j",
        namespace="n",
        role=Role.MANAGER,
        control_url="http://127.0.0.1:1",
        memory_dir=str(folder),
        steps=1,
        manager=ManagerConfig(ledger=folder / "ledger.sqlite", prompts="tasks:prompts", rollout="tasks:rollout"),
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what is watched tells nobody
            await asyncio.sleep(0.005)
