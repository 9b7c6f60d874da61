"""A process that the kernel kills for want of memory is told apart from one that somebody else killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from robustrl.supervisor import memory_limit
from robustrl.supervisor.process import NO_MEMORY

LIMIT = 200 << 20
PARENT = """
import asyncio, os, sys
from robustrl.supervisor.process import start_cold

async def main():
    child = await start_cold([sys.executable, "-c", sys.argv[1]], os.environ)
    print(await child.wait(), child.last_words())

asyncio.run(main())
"""
WANTS_MUCH = "data = bytearray(1 << 30)"
IS_KILLED = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(
    ("files", "own", "kills"),
    [
        pytest.param({"memory.events": "low 0\noom 9\noom_kill 2\n"}, "0::/", 2, id="v2, in a namespace of its own"),
        pytest.param({"a/b/memory.events": "oom_kill 3"}, "0::/a/b", 3, id="v2, as the host names it"),
        pytest.param({"memory.events": "oom_kill 4"}, "0::/a/b", 4, id="v2, mounted as the root"),
        pytest.param({"memory/a/memory.oom_control": "under_oom 0\noom_kill 5"}, "4:memory:/a\n0::/", 5, id="v1"),
        pytest.param({"memory/memory.oom_control": "oom_kill 6"}, "4:cpu,memory:/a", 6, id="v1, mounted as the root"),
        pytest.param({"memory/a/memory.oom_control": "under_oom 0"}, "4:memory:/a", 0, id="an old kernel"),
        pytest.param({}, "0::/", 0, id="the root group has no counter"),
    ],
)
def test_where_the_counter_is(tmp_path: Path, files: dict[str, str], own: str, kills: int) -> None:
    for name, text in files.items():
        path = tmp_path / "system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(own)
    assert memory_limit.kills(tmp_path / "system", tmp_path / "own") == kills


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group with little memory, made for this test."""
    tree = memory_limit.SYSTEM / "memory"
    if not tree.is_dir():
        tree = memory_limit.SYSTEM
    group = tree / f"robustrl-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control groups may be made here: {error}")
    limit = next((group / name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists()), None)
    try:
        if limit is None:
            pytest.skip("control groups do not limit memory here")
        limit.write_text(str(LIMIT))
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    for _ in range(50):  # its last process may not be gone yet
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


@pytest.mark.parametrize(("program", "for_want"), [(WANTS_MUCH, True), (IS_KILLED, False)])
def test_a_kill_for_want_of_memory_is_named(limited: Path, program: str, for_want: bool) -> None:
    def join() -> None:
        (limited / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run(
        [sys.executable, "-c", PARENT, program], preexec_fn=join, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("-9 ")
    assert (NO_MEMORY in done.stdout) is for_want
