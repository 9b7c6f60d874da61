"""When an engine's work stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from robustrl.engines.adapter import EngineCounters
from robustrl.supervisor import rollout_runner
from robustrl.supervisor.cpu_time import process_time
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.rollout_runner import RolloutRunner, why_still
from robustrl.supervisor.state import PodState
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


def runner_of(tmp_path: Path, answer: object) -> tuple[RolloutRunner, PodState]:
    config = PodConfig(
        job="j", namespace="n", role=Role.ROLLOUT, control_url="http://127.0.0.1:1", memory_dir=str(tmp_path), steps=1
    )
    state = PodState("p", Role.ROLLOUT)
    managers, nobody = cast(Any, Managers(answer)), cast(Any, None)
    return RolloutRunner(config, state, nobody, PodMemory(config), managers, nobody, "127.0.0.1"), state


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
