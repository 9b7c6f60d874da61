"""A process is kept running, and served while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from robustrl.supervisor import process
from robustrl.supervisor.keeper import Keeper
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised, start_cold
from robustrl.supervisor.state import PodState
from robustrl_api.control import UNKILLABLE
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig


class Lives(list[Supervised]):
    """The processes that were started, one after another."""

    async def launch(self) -> Supervised:
        self.append(await start_cold(["sleep", "60"], {}))
        return self[-1]


def make_keeper(
    folder: Path, launch: Callable[[], Awaitable[Supervised]], serve: Callable[[], Awaitable[None]]
) -> tuple[Keeper, PodState]:
    config = PodConfig(
        job="j", namespace="n", role=Role.ROLLOUT, control_url="http://127.0.0.1:1", memory_dir=str(folder), steps=1
    )
    state = PodState("pod", Role.ROLLOUT)
    return Keeper("the engine", state, PodMemory(config), launch, serve, "BadEngine"), state


@pytest.mark.timeout(60)
async def test_a_process_that_cannot_be_served_begins_anew(tmp_path: Path) -> None:
    """Nobody would give it weights any more, and it would go on looking well."""
    lives = Lives()
    served = asyncio.Event()

    async def serve() -> None:
        if len(lives) == 1:
            raise ValueError("what nobody had foreseen")
        served.set()
        await asyncio.Event().wait()

    keeper, state = make_keeper(tmp_path, lives.launch, serve)
    running = asyncio.create_task(keeper.run())
    await served.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await keeper.stop()
    assert [await life.wait() for life in lives] == [-9, -9]
    assert state.child.last_exit is not None
    assert state.child.last_exit.code == -9


async def test_a_process_that_a_kill_does_not_end_is_complained_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was convicted as hung, and waits in the kernel for its device."""
    monkeypatch.setattr(process, "UNKILLABLE_SECONDS", 0.05)
    lives = Lives()
    served = asyncio.Event()

    async def serve() -> None:
        served.set()
        await asyncio.Event().wait()

    keeper, state = make_keeper(tmp_path, lives.launch, serve)
    running = asyncio.create_task(keeper.run())
    await served.wait()
    with monkeypatch.context() as unkillable:
        unkillable.setattr(Supervised, "kill", lambda self: None)
        keeper.end(keeper.life)
        async with asyncio.timeout(5):
            while state.complaint is None:
                state.changed.clear()
                await state.changed.wait()
    assert state.complaint.reason == UNKILLABLE
    assert f"process {lives[0].pid}" in state.complaint.message
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await keeper.stop()
