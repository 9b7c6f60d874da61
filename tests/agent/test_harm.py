"""A fault made on purpose: what each harm does to a real process, and that it is done once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from robustrl.checkpoint.loss import PATIENCE_SECONDS, Loss
from robustrl.checkpoint.refusal import Refusal
from robustrl.supervisor import harm
from robustrl.supervisor.harm import Striker, inflict
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.proc_stat import read_stat
from robustrl.supervisor.state import PodState
from robustrl_api.control import Harm, Strike, Struck
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig
from robustrl_api.skew import read_message
from robustrl_api.version import Version
from robustrl_operator.faults.kind import CUT_SECONDS, FREEZE_SECONDS, FaultKind
from robustrl_operator.faults.matrix import MATRIX

HUNGRY = (
    "import time\nprint('up', flush=True)\nheld = []\nwhile True:\n  held.append(bytearray(1 << 24)); time.sleep(.01)"
)
# What a shell runs in the background ignores SIGINT, and so do its children.
IDLE = (
    "import signal, time\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "print('up', flush=True)\nwhile True: time.sleep(.01)"
)
SECONDS = 20


@contextlib.contextmanager
def running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.communicate()


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    with running(getattr(request, "param", IDLE)) as child:
        yield child


def state_of(pid: int) -> str:
    stat = read_stat(pid)
    assert stat is not None
    return str(stat[0])


async def test_killed(process: subprocess.Popen[bytes]) -> None:
    await inflict(process.pid, Harm.KILL)
    assert await asyncio.to_thread(process.wait, SECONDS) == -signal.SIGKILL


async def test_stopped(process: subprocess.Popen[bytes]) -> None:
    await inflict(process.pid, Harm.STOP)
    while state_of(process.pid) != "T":  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.01)


async def test_an_exception(process: subprocess.Popen[bytes]) -> None:
    await inflict(process.pid, Harm.INTERRUPT)
    _, said = await asyncio.to_thread(process.communicate, None, SECONDS)
    assert b"KeyboardInterrupt" in said


@pytest.mark.parametrize("process", [HUNGRY], indirect=True)
async def test_no_more_memory(process: subprocess.Popen[bytes]) -> None:
    await inflict(process.pid, Harm.STARVE)
    _, said = await asyncio.to_thread(process.communicate, None, SECONDS)
    assert b"MemoryError" in said


async def test_slowed_down_for_a_while(process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harm, "SLOW_SECONDS", 0.5)
    slowing = asyncio.create_task(inflict(process.pid, Harm.SLOW))
    seen = set()
    while not slowing.done():
        seen.add(state_of(process.pid) == "T")
        await asyncio.sleep(0.005)
    assert seen == {True, False}
    await slowing
    assert process.poll() is None


def striker(
    tmp_path: Path, pid: int | None, storage: Refusal | None = None, loss: Loss | None = None
) -> tuple[PodState, Striker]:
    state = PodState("p", Role.ROLLOUT)
    config = PodConfig(
        job="j", namespace="n", role=Role.ROLLOUT, control_url="http://127.0.0.1:1", memory_dir=str(tmp_path), steps=1
    )
    return state, Striker(state, PodMemory(config), lambda: pid, loss or Loss(), storage)


async def test_a_strike_is_carried_out_once_also_by_the_next_agent(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    state, first = striker(tmp_path, process.pid)
    first.take(Strike(id="a", harm=Harm.KILL))
    assert state.struck is not None
    assert (state.struck.id, state.struck.error) == ("a", "")
    assert await asyncio.to_thread(process.wait, SECONDS) == -signal.SIGKILL
    # The next agent would harm this process, if it did not know.
    with running(IDLE) as other:
        state, second = striker(tmp_path, other.pid)
        second.take(Strike(id="a", harm=Harm.KILL))
        second.take(None)
        await asyncio.sleep(0.1)
        assert state.struck is not None
        assert (state.struck.id, other.poll()) == ("a", None)
        second.take(Strike(id="b", harm=Harm.KILL))
        assert await asyncio.to_thread(other.wait, SECONDS) == -signal.SIGKILL


async def test_a_checkpoint_is_lost_with_the_process(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    loss = Loss()
    _, agents = striker(tmp_path, process.pid, loss=loss)
    agents.take(Strike(id="a", harm=Harm.LOSE_CHECKPOINT))
    assert await asyncio.to_thread(process.wait, SECONDS) == -signal.SIGKILL
    assert [loss.covers(version) for version in (Version(1, 7), Version(1, 6), Version(1, 7))] == [True, False, True]


def test_no_checkpoint_is_lost_that_is_restored_for_another_reason_later() -> None:
    clock = SimpleNamespace(now=100.0)
    loss = Loss(lambda: clock.now)
    assert not loss.covers(Version(1, 7))
    loss.begin()
    clock.now += PATIENCE_SECONDS
    assert not loss.covers(Version(1, 7))


async def test_without_a_process_it_says_so_and_forgets_nothing(tmp_path: Path) -> None:
    state, agents = striker(tmp_path, None)
    agents.take(Strike(id="a", harm=Harm.KILL))
    assert state.struck is not None
    assert state.struck.error == "no process runs in this pod now"


@pytest.mark.parametrize("wanted", [Harm.STORAGE_FULL, Harm.STORAGE_READ_ONLY])
async def test_storage_refuses_for_as_long_as_the_row_of_the_matrix_has_it(tmp_path: Path, wanted: Harm) -> None:
    clock = SimpleNamespace(now=100.0)
    state, agents = striker(tmp_path, None, storage := Refusal(lambda: clock.now))
    storage.check()
    agents.take(Strike(id="a", harm=wanted))
    assert state.struck == Struck(id="a")
    (seconds,) = {row.seconds for row in MATRIX if row.kind in (FaultKind.STORAGE_FULL, FaultKind.STORAGE_READ_ONLY)}
    for clock.now, refused in ((100.0, True), (100.0 + seconds - 0.1, True), (100.0 + seconds, False)):
        with pytest.raises(OSError, match=r"No space|Read-only") if refused else contextlib.nullcontext():
            storage.check()


async def test_where_there_is_no_storage_none_refuses(tmp_path: Path) -> None:
    state, agents = striker(tmp_path, None)
    agents.take(Strike(id="a", harm=Harm.STORAGE_FULL))
    assert state.struck is not None
    assert "no storage" in state.struck.error


async def test_a_harm_of_a_later_version_is_said_to_be_none(tmp_path: Path) -> None:
    state, agents = striker(tmp_path, None)
    agents.take(read_message(Strike, '{"id": "a", "harm": "Melt", "how": "slowly"}'))
    assert state.struck is not None
    assert state.struck.error == "its agent knows no harm Melt: it is of another version than the operator"


FRONT = (
    "import subprocess, sys, time\n"
    "below = subprocess.Popen([sys.executable, '-c', 'import time\\nwhile True: time.sleep(.01)'])\n"
    "print(below.pid, flush=True)\nwhile True: time.sleep(.01)"
)


@pytest.fixture
def fronted() -> Iterator[tuple[int, int]]:
    """A process and the one below it."""
    child = subprocess.Popen([sys.executable, "-c", FRONT], stdout=subprocess.PIPE)
    assert child.stdout is not None
    below = int(child.stdout.readline())
    yield child.pid, below
    os.kill(below, signal.SIGKILL)
    child.kill()
    child.communicate()


async def test_what_is_below_stops_and_the_front_goes_on(fronted: tuple[int, int]) -> None:
    front, below = fronted
    await inflict(front, Harm.STOP_BELOW)
    while state_of(below) != "T":  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.01)
    assert state_of(front) in "SR"


async def test_with_nothing_below_nothing_stops(process: subprocess.Popen[bytes]) -> None:
    with pytest.raises(OSError, match="no processes below"):
        await inflict(process.pid, Harm.STOP_BELOW)
    assert state_of(process.pid) in "SR"


STILL = (
    "import os, subprocess, sys\n"
    "from robustrl.supervisor.harm import stand_still\n"
    "below = subprocess.Popen([sys.executable, '-c', 'import time\\nwhile True: time.sleep(.01)'])\n"
    "print(below.pid, flush=True)\n"
    "stand_still(float(sys.argv[1]))\n"
    "print('goes on', flush=True)\nsys.stdin.read()\nbelow.kill()\nbelow.wait()"
)


@contextlib.contextmanager
def standing_still(seconds: float) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that stands still, and the one below it."""
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", STILL, str(seconds)], stdout=subprocess.PIPE, stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        below = int(child.stdout.readline())
        yield child, below
        with contextlib.suppress(ProcessLookupError):
            os.kill(below, signal.SIGKILL)
        child.kill()


async def test_a_pod_stands_still_and_goes_on() -> None:
    with standing_still(1.0) as (child, below):
        while state_of(below) != "T":  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.01)
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"goes on\n"
        assert state_of(below) in "SR"


async def test_a_pod_that_has_fallen_silent_stays_so() -> None:
    with standing_still(harm.FOR_EVER_SECONDS) as (child, below):
        while state_of(below) != "T":  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert (state_of(below), child.poll()) == ("T", None)


async def test_it_is_said_before_nothing_is_said_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stood: list[float] = []
    monkeypatch.setattr(harm, "TOLD_SECONDS", 0.05)
    monkeypatch.setattr(harm, "stand_still", stood.append)
    state, agents = striker(tmp_path, None)
    agents.take(Strike(id="a", harm=Harm.FALL_SILENT))
    assert state.struck == Struck(id="a")
    assert stood == [], "the report goes out first"
    await asyncio.sleep(0.2)
    agents.take(Strike(id="b", harm=Harm.STAND_STILL))
    await asyncio.sleep(0.2)
    agents.take(Strike(id="c", harm=Harm.CUT_OFF))
    await asyncio.sleep(0.2)
    assert stood == [harm.FOR_EVER_SECONDS, FREEZE_SECONDS, CUT_SECONDS]
