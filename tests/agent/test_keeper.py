"""A process is kept running, and served while it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.agent.test_processes import gone

from robustrl.supervisor import keeper as keeping
from robustrl.supervisor import process
from robustrl.supervisor.keeper import Keeper
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised, start_cold
from robustrl.supervisor.state import PodState
from robustrl_api.control import UNKILLABLE, ChildState
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


async def test_what_a_process_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """The front of an engine dies, and what works behind it would keep the port and the GPU from the next one."""
    left, second = [], asyncio.Event()

    async def launch() -> Supervised:
        if left:
            second.set()
            return await start_cold(["sleep", "60"], {})
        child = await start_cold(["sh", "-c", "sleep 60 & echo $! >&2; exit 3"], os.environ)
        while not child.last_lines:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        left.append(int(child.last_lines[0]))
        return child

    keeper, _ = make_keeper(tmp_path, launch, asyncio.Event().wait)  # type: ignore[arg-type]
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        await second.wait()
        while not gone(left[0]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await keeper.stop()


async def test_only_time_at_work_makes_a_restart_the_first_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs at each start lives for long each time."""
    monkeypatch.setattr(keeping, "STABLE_SECONDS", 0.0)
    monkeypatch.setattr(keeping, "MAX_RESTART_SECONDS", 0.0)
    lives, served, counts = Lives(), asyncio.Event(), list[int]()

    async def serve() -> None:
        if len(lives) == 4:
            keeper.up()
        served.set()
        await asyncio.Event().wait()

    keeper, state = make_keeper(tmp_path, lives.launch, serve)
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(20):
        for _ in range(6):
            await served.wait()
            served.clear()
            counts.append(state.child.restarts)
            keeper.end(keeper.life)
    assert counts == [0, 1, 2, 3, 1, 2]
    assert state.child.last_exit is not None
    assert state.child.last_exit.requested
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await keeper.stop()


async def test_a_process_that_never_starts_is_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a thousand tries the delay was too large a number, and the agent ended."""
    tries, enough = 0, asyncio.Event()

    async def launch() -> Supervised:
        nonlocal tries
        tries += 1
        if tries > 1200:
            enough.set()
            await asyncio.Event().wait()
        raise OSError("no such program")

    monkeypatch.setattr(keeping, "MAX_RESTART_SECONDS", 0.0)
    keeper, _ = make_keeper(tmp_path, launch, asyncio.Event().wait)  # type: ignore[arg-type]
    running = asyncio.create_task(keeper.run())
    reached = asyncio.create_task(enough.wait())
    await asyncio.wait({running, reached}, return_when=asyncio.FIRST_COMPLETED)
    assert enough.is_set()
    for task in (running, reached):
        task.cancel()
    await asyncio.gather(running, reached, return_exceptions=True)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["sleep " + "x" * 5000], "File name too long"),
        (["sleep", "a\0b"], "null byte"),
        (["missing-program"], "missing-program"),
    ],
)
async def test_a_process_that_cannot_be_started_is_an_exit_that_a_report_has_room_for(
    tmp_path: Path, command: list[str], words: str
) -> None:
    async def serve() -> None: ...

    keeper, state = make_keeper(tmp_path, lambda: start_cold(command, {}), serve)
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(5):
        while state.child.state is not ChildState.EXITED and not running.done():
            state.changed.clear()
            await state.changed.wait()
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await keeper.stop()
    assert state.child.last_exit is not None
    assert state.child.last_exit.message.startswith("the engine cannot be started: ")
    assert words in state.child.last_exit.message
