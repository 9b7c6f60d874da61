"""Whether processes do anything: by numbers, and by processes that do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agent.test_activity import Clock

from robustrl.supervisor import standstill
from robustrl.supervisor.cpu_time import ProcessTime
from robustrl.supervisor.standstill import CHATTER_BYTES, StandstillMeter, bytes_moved, waits_for_disk

NOTHING = (0.0, 0)


@pytest.mark.parametrize(
    ("each", "disk", "still"),
    [
        ((NOTHING, NOTHING), False, True),
        (((0.019, CHATTER_BYTES - 1), NOTHING), False, True),
        (((0.021, 0), NOTHING), False, False),
        (((0.011, 0), (0.011, 0)), False, False),
        ((NOTHING, (0.0, CHATTER_BYTES)), False, False),
        ((NOTHING, NOTHING), True, False),
    ],
    ids=["nothing", "chatter", "the processor", "the processor, together", "reading", "waiting for a disk"],
)
def test_still(monkeypatch: pytest.MonkeyPatch, each: tuple[tuple[float, int], ...], disk: bool, still: bool) -> None:
    """Of each process: its share of a core, and bytes a second."""
    clock, seconds = Clock(), 2.0
    monkeypatch.setattr(
        standstill, "process_time", lambda pid: ProcessTime(each[pid][0] * (clock.now - 100), stopped=False)
    )
    monkeypatch.setattr(standstill, "bytes_moved", lambda pid: 7 + int(each[pid][1] * (clock.now - 100)))
    monkeypatch.setattr(standstill, "waits_for_disk", lambda pid: disk and pid == 1)
    meter = StandstillMeter(20, clock)
    assert not meter.all_still([0, 1]), "one look says nothing yet"
    for _ in range(2):
        clock.now += seconds
        assert meter.all_still([0, 1]) is still


def test_what_comes_and_goes_counts_once_it_was_seen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    there = {1: 0, 2: 10 * CHATTER_BYTES}
    monkeypatch.setattr(standstill, "process_time", lambda pid: ProcessTime(0.0, False) if pid in there else None)
    monkeypatch.setattr(standstill, "bytes_moved", there.get)
    monkeypatch.setattr(standstill, "waits_for_disk", lambda pid: False)
    meter, looks = StandstillMeter(20, clock), list[bool]()
    for change in ({}, {3: 10 * CHATTER_BYTES}, {3: 20 * CHATTER_BYTES}):
        there.update(change)
        looks.append(meter.all_still([1, 2, 3]))
        clock.now += 1
    there.clear()
    assert [*looks, meter.all_still([1, 2, 3])] == [False, True, False, False], (
        "of those that are gone nothing is known"
    )


@contextmanager
def running(*command: str) -> Iterator[int]:
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(30)
def test_reading_is_seen_also_where_short_lived_children_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "waits_for_disk", lambda pid: False)
    with running("sh", "-c", "while :; do head -c 1000000 /dev/zero > /dev/null; done") as front:
        meter = StandstillMeter(1_000_000)  # what it uses of the processor does not count here
        meter.all_still([front])
        while meter.all_still([front]):
            time.sleep(0.05)


def test_of_a_process_that_is_gone_or_another_users_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with running("sleep", "60") as pid:
        assert bytes_moved(pid) is not None
    assert bytes_moved(pid) is None
    assert not waits_for_disk(pid)

    def refuse(path: Path) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert bytes_moved(os.getpid()) is None


THREAD_THAT_WAITS = """
import os, sys, threading
opens = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]
threading.Thread(target=lambda: os.posix_spawn("/bin/true", ["true"], {}, file_actions=opens)).start()
"""
"""Whoever starts a process waits in the kernel until it has opened its files: the same state as waiting for a disk."""


@pytest.mark.timeout(30)
def test_a_thread_that_waits_for_a_disk_is_seen(tmp_path: Path) -> None:
    nobody_writes = tmp_path / "fifo"
    os.mkfifo(nobody_writes)
    with running("sleep", "60") as sleeper:
        assert not waits_for_disk(sleeper)
    with running(sys.executable, "-c", THREAD_THAT_WAITS, str(nobody_writes)) as pid:
        while not waits_for_disk(pid):
            time.sleep(0.02)
