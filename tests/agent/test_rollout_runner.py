"""When an engine's work stands still."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from robustrl.engines.adapter import EngineCounters
from robustrl.supervisor import rollout_runner
from robustrl.supervisor.cpu_time import process_time
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.proc_stat import descendants
from robustrl.supervisor.process import Supervised, start_cold
from robustrl.supervisor.rollout_runner import RolloutRunner, why_still
from robustrl.supervisor.state import PodState
from robustrl_api.control import Assignment, Child, ChildState
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig

NO_TOKEN = "no new token while 3 requests run"


@pytest.fixture
def engine() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    ("seen", "applying", "refused", "expected"),
    [
        ("", False, False, ""),
        ("", True, False, ""),
        (NO_TOKEN, False, False, NO_TOKEN),
        (NO_TOKEN, True, False, ""),
        (NO_TOKEN, True, True, NO_TOKEN),
        ("", True, True, "it does not take new weights"),
        ("", False, True, "it does not take new weights"),
    ],
)
def test_an_engine_that_applies_weights_need_not_make_tokens_but_must_not_refuse_them(
    engine: int, seen: str, applying: bool, refused: bool, expected: str
) -> None:
    assert why_still(engine, seen, applying=applying, refused=refused) == expected
    assert why_still(None, seen, applying=applying, refused=refused) == expected


@pytest.mark.parametrize("applying", [False, True])
def test_a_stopped_engine_stands_still_whatever_it_is_about(engine: int, applying: bool) -> None:
    os.kill(engine, signal.SIGSTOP)
    os.waitid(os.P_PID, engine, os.WSTOPPED)
    assert why_still(engine, "", applying=applying, refused=False) == f"engine process {engine} is stopped"


def test_an_engine_stopped_behind_its_front_is_seen_while_it_applies_weights() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout
        engine = int(front.stdout.readline())
        os.kill(engine, signal.SIGSTOP)
        while not stopped(engine):
            time.sleep(0.01)
        assert why_still(front.pid, "", applying=True, refused=False) == f"engine process {engine} is stopped"
        os.kill(engine, signal.SIGKILL)


def stopped(pid: int) -> bool:
    used = process_time(pid)
    return used is not None and used.stopped


class Managers:
    """Whoever has got the address of managers that are gone."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def call(self, *_: object, **__: object) -> object:
        return self._answer


class Launcher:
    """Starts engines that never come up."""

    def __init__(self, state: Callable[[], PodState]) -> None:
        self._state, self.started, self.idle = state, list[Supervised](), list[float]()

    async def launch(self, *_: object) -> Supervised:
        report = self._state().activity.report()
        self.idle.append(report.asleep_seconds + report.idle_seconds)
        self.started.append(await start_cold(["sleep", "60"], os.environ))
        return self.started[-1]


def runner_of(tmp_path: Path, answer: object, launcher: object = None) -> tuple[RolloutRunner, PodState]:
    config = PodConfig(
        job="j", namespace="n", role=Role.ROLLOUT, control_url="http://127.0.0.1:1", memory_dir=str(tmp_path), steps=1
    )
    state = PodState("p", Role.ROLLOUT)
    managers, publisher = cast(Any, Managers(answer)), cast(Any, SimpleNamespace(bytes_sent=0))
    memory = PodMemory(config)
    memory.prepare()
    return RolloutRunner(config, state, cast(Any, launcher), memory, managers, publisher, "127.0.0.1"), state


@pytest.mark.parametrize("answer", [None, {}, {"hello": "world"}])
async def test_an_answer_that_does_not_say_whether_the_engine_is_admitted_admits_none(
    tmp_path: Path, answer: object
) -> None:
    runner, state = runner_of(tmp_path, answer)
    await runner._register()
    assert not state.admitted
    await runner._session.close()


class Page:
    """A front that goes on telling what it heard of its engine last: no request, and so many tokens."""

    async def counters(self) -> EngineCounters:
        return EngineCounters(generation_tokens_total=700, running=0, queued=0)


@pytest.mark.parametrize(("running", "still"), [(0, False), (2, True)])
async def test_an_engine_makes_tokens_while_the_managers_wait_for_its_turns_whatever_its_front_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: int, still: bool
) -> None:
    monkeypatch.setattr(rollout_runner, "REGISTER_SECONDS", 0.0)
    runner, state = runner_of(tmp_path, {"admitted": True, "running": running})
    runner._adapter = cast(Any, Page())
    await runner._register()
    watch = asyncio.create_task(runner._watch_work())
    for _ in range(5):
        await asyncio.sleep(0)
    assert state.activity.report().idle_text == ("no new token while 2 requests run" if still else "")
    watch.cancel()
    await runner._session.close()


class Starting:
    """An engine that is not up yet."""

    def __init__(self) -> None:
        self.up = False

    async def ready(self) -> bool:
        return self.up

    async def deep_probe(self, timeout: float) -> bool:
        return self.up


async def seen(what: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110 - the runner looks now and then
            await asyncio.sleep(0.01)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines are looked at more often than once a second."""
    monkeypatch.setattr(rollout_runner, "REGISTER_SECONDS", 0.02)


@pytest.mark.usefixtures("often")
async def test_an_engine_that_does_nothing_as_it_starts_sleeps_and_a_stopped_one_stands_still(
    tmp_path: Path, engine: int
) -> None:
    runner, state = runner_of(tmp_path, {})
    runner._adapter = starting = cast(Any, Starting())
    runner._keeper.process = lambda: engine  # type: ignore[method-assign]
    waiting = asyncio.create_task(runner._until_ready())
    await seen(lambda: state.activity.report().asleep_seconds)
    assert state.activity.report().idle_seconds == 0, "it may go on by itself"
    os.kill(engine, signal.SIGSTOP)
    await seen(lambda: state.activity.report().idle_seconds)
    assert state.activity.report().idle_text == f"engine process {engine} is stopped"
    os.kill(engine, signal.SIGCONT)
    await seen(lambda: not state.activity.report().idle_seconds)
    os.kill(engine, signal.SIGSTOP)
    await seen(lambda: state.activity.report().idle_seconds)
    starting.up = True
    await waiting
    report = state.activity.report()
    assert (report.idle_seconds, report.asleep_seconds) == (0, 0), "what it does from now on is another matter"
    await runner._session.close()


@pytest.mark.usefixtures("often")
async def test_an_engine_that_does_something_as_it_starts_does_not_sleep(
    tmp_path: Path, engine: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.chain([True, True], itertools.repeat(False))
    monkeypatch.setattr(rollout_runner.StandstillMeter, "all_still", lambda self, pids: next(looks))
    runner, state = runner_of(tmp_path, {})
    runner._adapter = cast(Any, Starting())
    runner._keeper.process = lambda: engine  # type: ignore[method-assign]
    waiting = asyncio.create_task(runner._until_ready())
    await seen(lambda: state.activity.report().asleep_seconds)
    await seen(lambda: not state.activity.report().asleep_seconds)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await runner._session.close()


@pytest.mark.usefixtures("often")
async def test_an_engine_that_hangs_as_it_starts_is_ended_and_the_next_has_done_nothing_wrong(tmp_path: Path) -> None:
    launcher = Launcher(lambda: state)
    runner, state = runner_of(tmp_path, {}, launcher)
    runner._adapter = cast(Any, Starting())
    assignment = Assignment(role=Role.ROLLOUT)
    await runner.start(assignment)
    await seen(lambda: state.activity.report().asleep_seconds)
    assert state.child.state is ChildState.STARTING
    life = state.child.life
    await runner.update(assignment.model_copy(update={"end_life": life}))
    await seen(lambda: len(launcher.started) == 2)
    assert launcher.idle == [0, 0]
    assert await launcher.started[0].wait() == -signal.SIGKILL
    assert state.child.state is ChildState.STARTING
    assert state.child.life != life
    assert state.child.last_exit is not None
    assert state.child.last_exit.requested
    for other in (life, "of-an-agent-before.1"):
        await runner.update(assignment.model_copy(update={"end_life": other}))
        await seen(lambda: state.activity.report().asleep_seconds)
        await asyncio.sleep(0.05)
    assert runner.process() == launcher.started[-1].pid, "it is another that was to be ended"
    await runner.stop()


async def test_an_engine_stopped_behind_its_front_does_not_start_whatever_the_front_does(tmp_path: Path) -> None:
    front = await start_cold(["sh", "-c", "sleep 60 & while :; do :; done"], os.environ)
    runner, _ = runner_of(tmp_path, {})
    runner._adapter = cast(Any, Starting())
    runner._keeper.process = lambda: front.pid  # type: ignore[method-assign]
    await seen(lambda: descendants(front.pid))
    (engine,) = descendants(front.pid)
    assert await runner.works(0.2)
    os.kill(engine, signal.SIGSTOP)
    await seen(lambda: stopped(engine))
    assert not await runner.works(0.2)
    await front.end()
    await runner._session.close()


SLEEPS, SPINS = ("sleep", "60"), ("sh", "-c", "while :; do :; done")


@pytest.mark.parametrize(
    ("command", "state", "up", "works"),
    [
        (SLEEPS, ChildState.STARTING, False, False),
        (SLEEPS, ChildState.STARTING, True, True),
        (SPINS, ChildState.STARTING, False, True),
        (SPINS, ChildState.RUNNING, False, False),
    ],
    ids=["does nothing", "answers", "does something", "does something, but was up"],
)
async def test_an_engine_that_starts_need_not_answer_if_it_does_something(
    tmp_path: Path, command: tuple[str, ...], state: ChildState, up: bool, works: bool
) -> None:
    engine = await start_cold(command, os.environ)
    runner, pod = runner_of(tmp_path, {})
    runner._adapter = starting = cast(Any, Starting())
    starting.up, pod.child = up, Child(state=state)
    runner._keeper.process = lambda: engine.pid  # type: ignore[method-assign]
    await asyncio.sleep(0.1)
    assert await runner.works(0.5) is works
    os.kill(engine.pid, signal.SIGSTOP)
    assert await runner.works(0.1) is up, "a stopped one has to answer"
    await engine.end()
    await runner._session.close()
