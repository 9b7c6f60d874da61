"""Children under care: exits in milliseconds, last words kept, nobody outlives its parent; cold and warm."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from robustrl.exit_status import BAD_INPUT_STATUS
from robustrl.supervisor import process, warm
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.process import Supervised, start_cold
from robustrl.supervisor.warm import MAX_REQUEST_BYTES, WarmWorkerClient, WarmWorkerGone, python_arguments
from robustrl.warm_worker import run_python, top_level_imports
from robustrl_api.control import Exit
from robustrl_api.names import Role
from robustrl_api.pod_config import MANAGER_CONFIG_ENV, PodConfig

PYTHON = sys.executable
ROOT = Path(__file__).parents[2]


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def cold(program: str) -> Supervised:
    return await start_cold([PYTHON, "-c", program], os.environ)


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise ValueError('boom')", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
    ],
)
async def test_exits_are_told_as_they_were(program: str, code: int) -> None:
    assert await (await cold(program)).wait() == code


async def test_last_words_are_kept() -> None:
    child = await cold("import sys\nfor n in range(100): print(n, file=sys.stderr)\nraise ValueError('at last')")
    await child.wait()
    lines = child.last_words().splitlines()
    assert lines[-1] == "ValueError: at last"
    assert len(lines) == 30


async def test_last_words_are_as_many_as_a_report_has_room_for() -> None:
    child = await cold("import sys\nfor n in range(30): print(f'{n:0500}', file=sys.stderr)")
    await child.wait()
    words = child.last_words()
    assert len(Exit(message=words).message) == 4000
    assert words.endswith("0029"), "the end is what tells"


async def test_endless_line_does_not_end_the_listening() -> None:
    child = await cold("import sys; sys.stderr.write('x' * 3_000_000); raise ValueError('after it')")
    assert await child.wait() == 1


async def test_kill_takes_what_the_child_started_along() -> None:
    program = "import subprocess,sys; p=subprocess.Popen(['sleep','60']); print(p.pid,file=sys.stderr); p.wait()"
    child = await cold(program)
    async with asyncio.timeout(10):
        while not child.last_words():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    grandchild = int(child.last_words())
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    async with asyncio.timeout(10):
        while not gone(grandchild):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_command_that_does_not_exist() -> None:
    with pytest.raises(OSError, match="no-such-program"):
        await start_cold(["/no-such-program"], {})


def test_child_dies_with_its_parent() -> None:
    """The parent is killed without a chance to say goodbye."""
    program = (
        "import asyncio, os, sys\n"
        "from robustrl.supervisor.process import start_cold\n"
        "async def main():\n"
        "    child = await start_cold(['sleep', '60'], os.environ)\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'agent'}:{ROOT / 'crds'}:{ROOT / 'weightsync'}"}
    parent = subprocess.Popen([PYTHON, "-c", program], stdout=subprocess.PIPE, text=True, env=env)
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    for _ in range(500):
        if gone(child):
            return
        os.sched_yield()
        signal.sigtimedwait([], 0.01)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child outlived its parent")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["python3", "train.py", "--x"], ["train.py", "--x"]),
        (["/usr/bin/python3.11", "-u", "train.py"], ["train.py"]),
        (["python", "-m", "package.train"], ["-m", "package.train"]),
        (["python", "-c", "pass"], None),
        (["python", "-O", "train.py"], None),
        (["bash", "train.sh"], None),
        (["python"], None),
        ([], None),
    ],
)
def test_which_commands_can_start_warm(command: list[str], arguments: list[str] | None) -> None:
    assert python_arguments(command) == arguments


def test_imports_of_a_script_are_found() -> None:
    source = "import a, b.c as d\nfrom e.f import g\nfrom . import no\ndef f():\n    import later\n"
    assert top_level_imports(source) == ["a", "b.c", "e.f"]
    assert top_level_imports("def") == []


@pytest.mark.parametrize(
    ("script", "code"),
    [("", 0), ("raise SystemExit", 0), ("raise SystemExit(4)", 4), ("raise SystemExit('no')", 1), ("1/0", 1)],
)
def test_script_ends_as_the_interpreter_would_end_it(tmp_path: Path, script: str, code: int) -> None:
    path = tmp_path / "script.py"
    path.write_text(script)
    before = list(sys.path), list(sys.argv)
    try:
        assert run_python([str(path)]) == code
    finally:
        sys.path[:], sys.argv[:] = before


@pytest.mark.timeout(240)
async def test_warm_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warm worker for everything, because it takes a while to load torch."""
    pytest.importorskip("torch")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'agent'}:{ROOT / 'crds'}:{ROOT / 'weightsync'}")
    programs = {
        "well.py": "import os, sys; print(os.environ['WORD'], sys.argv[1], 'torch' in sys.modules, file=sys.stderr)",
        "raises.py": "raise ValueError('boom')",
        "killed.py": "import os; os.kill(os.getpid(), 9)",
        "sleeps.py": "import time; time.sleep(60)",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    getattr(process, "adopt_orphans", lambda: None)()
    warm = WarmWorkerClient([])
    await warm.start()
    try:
        if hasattr(warm, "load_all"):
            warm.load_all()
        well = await warm.fork([str(tmp_path / "well.py"), "argument"], {**os.environ, "WORD": "word"})
        assert await well.wait() == 0
        assert well.last_words() == "word argument True"
        # As of a large ConfigMap in envFrom: more than a socket takes at once.
        large = {f"LARGE_{number}": "x" * 100_000 for number in range(20)}
        well = await warm.fork([str(tmp_path / "well.py"), "argument"], {**os.environ, **large, "WORD": "large"})
        assert await well.wait() == 0
        assert well.last_words() == "large argument True"
        raises, killed, sleeps = [
            await warm.fork([str(tmp_path / name)], os.environ) for name in ("raises.py", "killed.py", "sleeps.py")
        ]
        assert await raises.wait() == 1
        assert raises.last_words().endswith("ValueError: boom")
        assert await killed.wait() == -9
        sleeps.kill()
        assert await sleeps.wait() == -9
        for _ in range(20):  # however soon it ends: it is the agent's own child by the time the agent knows of it
            sleeps = await warm.fork([str(tmp_path / "sleeps.py")], os.environ)
            sleeps.kill()
            assert await sleeps.wait() == -9
    finally:
        await warm.close()


async def test_the_managers_start_from_a_warm_worker_that_has_no_torch(tmp_path: Path) -> None:
    """They come back in a fraction of the time that their imports take."""
    (tmp_path / "loaded.py").write_text(
        "import sys; print([name in sys.modules for name in ('robustrl.managers.server', 'torch')], file=sys.stderr)"
    )
    config = PodConfig(
        job="j", namespace="ns", role=Role.MANAGER, control_url="http://127.0.0.1:1", steps=1, memory_dir=str(tmp_path)
    )
    launcher = Launcher(config)
    await launcher.start()
    try:
        managers = await launcher.launch([sys.executable, "-m", "robustrl.managers"], {MANAGER_CONFIG_ENV: "nonsense"})
        assert await managers.wait() == BAD_INPUT_STATUS
        assert managers.last_words().startswith("robustrl.managers: ")
        loaded = await launcher.launch([sys.executable, str(tmp_path / "loaded.py")], {})
        assert await loaded.wait() == 0
        assert loaded.last_words() == "[True, False]"
    finally:
        await launcher.close()


async def test_a_fork_that_no_process_could_begin_with_is_refused() -> None:
    client = WarmWorkerClient([])
    client._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptors = len(os.listdir("/proc/self/fd"))
    with theirs, client._channel, pytest.raises(WarmWorkerGone):
        await client.fork(["train.py"], {"X": "x" * MAX_REQUEST_BYTES})
    assert len(os.listdir("/proc/self/fd")) == descriptors - 2, "no descriptor is left behind"


async def test_a_warm_worker_that_a_kill_does_not_end_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports from a file server that hangs. What takes its place is started cold, once it is closed."""

    class Unkillable:
        returncode, pid = None, 7

        def kill(self) -> None: ...

        async def wait(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(warm, "UNKILLABLE_SECONDS", 0.05)
    client = WarmWorkerClient([])
    client._process = cast(Any, Unkillable())
    async with asyncio.timeout(5):
        await client.close()


async def test_an_end_is_seen_though_somebody_else_took_its_status() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220
    future = process.ended(child.pid)
    child.communicate(b"\n")  # takes the status before the loop sees the end
    assert await asyncio.wait_for(future, 10) == process.STATUS_UNKNOWN


@pytest.mark.parametrize("heard_first", [False, True], ids=["cancelled before it is forked", "at the same moment"])
async def test_a_fork_that_nobody_waits_for_any_more_is_ended(heard_first: bool) -> None:
    """A promoted rollout loads torch for seconds before it forks, and its epoch may be over by then."""
    client = WarmWorkerClient([])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    client._channel, client._listener = ours, asyncio.create_task(client._listen(ours))
    asking = asyncio.create_task(client.fork(["train.py"], {}))
    await asyncio.sleep(0)
    forked = subprocess.Popen(["sleep", "60"])  # noqa: ASYNC220 - a child as the fork would be
    if heard_first:
        client._hear({"id": 0, "pid": forked.pid})
    asking.cancel()
    if not heard_first:
        await asyncio.sleep(0)
        theirs.send(json.dumps({"id": 0, "pid": forked.pid}).encode())
    await asyncio.gather(asking, return_exceptions=True)
    assert asking.cancelled()
    try:
        async with asyncio.timeout(10):
            while not gone(forked.pid):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        forked.kill()
        theirs.close()
        await client.close()
