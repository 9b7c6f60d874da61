"""When an engine's work stands still."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from robustrl.supervisor.rollout_runner import why_still

NO_TOKEN = "no new token while 3 requests run"


@pytest.fixture
def engine() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    ("seen", "applying", "expected"),
    [
        ("", False, ""),
        ("", True, ""),
        (NO_TOKEN, False, NO_TOKEN),
        (NO_TOKEN, True, ""),
    ],
)
def test_an_engine_that_applies_weights_need_not_make_tokens(
    engine: int, seen: str, applying: bool, expected: str
) -> None:
    assert why_still(engine, seen, applying=applying) == expected
    assert why_still(None, seen, applying=applying) == expected


@pytest.mark.parametrize("applying", [False, True])
def test_a_stopped_engine_stands_still_whatever_it_is_about(engine: int, applying: bool) -> None:
    os.kill(engine, signal.SIGSTOP)
    os.waitid(os.P_PID, engine, os.WSTOPPED)
    assert why_still(engine, "", applying=applying) == f"engine process {engine} is stopped"
