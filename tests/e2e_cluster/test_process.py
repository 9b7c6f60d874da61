import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from robustrl_e2e.cluster.errors import ClusterError
from robustrl_e2e.cluster.process import Identity, identify, parse_stat, read_pid_file, run, write_pid_file


def test_stat_of_a_process_with_a_nasty_name() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert parse_stat(f"7 (a b) R (c) S {fields}") == ("S", 22)


def test_a_process_is_found_again_by_its_pid_file(tmp_path: Path) -> None:
    me = identify(os.getpid())
    assert me is not None
    write_pid_file(tmp_path / "pid", me)
    assert read_pid_file(tmp_path / "pid") == me
    assert me.alive


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', "[]"])
def test_a_pid_file_that_was_cut_off_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "pid").write_text(content)
    assert read_pid_file(tmp_path / "pid") is None
    assert read_pid_file(tmp_path / "none") is None


def test_another_process_with_the_same_pid_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        now = identify(child.pid)
        assert now is not None
        for stranger in (replace(now, start=now.start - 1), replace(now, boot="another boot")):
            assert not stranger.alive
            stranger.signal(signal.SIGKILL)
        assert child.poll() is None
        now.signal(signal.SIGKILL)
        assert child.wait(timeout=5) == -signal.SIGKILL
    assert not now.alive
    now.signal(signal.SIGKILL)


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identify(child.pid) is None
    child.wait()


def test_a_pid_that_nobody_has() -> None:
    assert not Identity(2**22 + 1, 0, "").alive


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(ClusterError, match=r"(?s)sh -c.*ended with 3: because"):
        run("sh", "-c", "echo because >&2; exit 3")


def test_a_command_reads_its_input() -> None:
    assert run("cat", stdin="text") == "text"


def test_a_command_that_hangs_is_killed_and_named() -> None:
    with pytest.raises(ClusterError, match=r"sleep 60\nhas not ended within 0 s and was killed"):
        run("sleep", "60", seconds=0.05)
