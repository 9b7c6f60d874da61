"""Processor time of pods by their cgroups: which is whose, in both versions, and for how long it has stood still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustrl.node.process_activity import ProcessActivity, accounting_root, pod_folders, pod_uid, used_seconds
from robustrl_api.node import Source, WatchedPod

UID = "0f3c9b1e-7a64-4d55-9d0e-3f2b8f0c1a77"
UNDERSCORED = UID.replace("-", "_")
POD = WatchedPod(uid=UID, namespace="rl", name="j-trainer-1")


@pytest.mark.parametrize(
    ("folder", "uid"),
    [
        (f"pod{UID}", UID),
        (f"kubepods-burstable-pod{UNDERSCORED}.slice", UID),
        (f"kubepods-besteffort-pod{UNDERSCORED}.slice", UID),
        (f"kubepods-pod{UNDERSCORED}.slice", UID),
        (f"kubelet-kubepods-burstable-pod{UNDERSCORED}.slice", UID),
        ("pod4f1f8a0d3f7c8a1be1f3c0c1d2e3f405", "4f1f8a0d3f7c8a1be1f3c0c1d2e3f405"),
        ("kubepods", None),
        ("kubepods-burstable.slice", None),
        ("kubepods.slice", None),
        ("podman-1234.scope", None),
        ("pods", None),
        ("system.slice", None),
        (f"cri-containerd-{'ab' * 32}.scope", None),
        ("", None),
    ],
)
def test_the_uid_in_a_cgroups_name(folder: str, uid: str | None) -> None:
    assert pod_uid(folder) == uid


CGROUPFS_1 = f"cpuacct/kubepods/burstable/pod{UID}"
OWN_ROOT_1 = f"cpuacct/cluster/n1/kubepods/besteffort/pod{UID}"
SYSTEMD_2 = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"


def use(folder: Path, seconds: float) -> None:
    """Have the kernel say that a cgroup has used so much."""
    folder.mkdir(parents=True, exist_ok=True)
    if "cpuacct" in folder.parts:
        (folder / "cpuacct.usage").write_text(f"{int(seconds * 1e9)}\n")
    else:
        (folder / "cpu.stat").write_text(f"usage_usec {int(seconds * 1e6)}\nuser_usec 1\nsystem_usec 1\n")


@pytest.fixture(params=[CGROUPFS_1, OWN_ROOT_1, SYSTEMD_2], ids=["version 1", "own root", "version 2, systemd"])
def cgroup(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A pod's cgroup, with a container's in it."""
    if request.param == SYSTEMD_2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    folder = tmp_path / request.param
    use(folder, 12.5)
    use(folder / f"cri-containerd-pod{UID}.scope", 1)
    return folder


def test_a_pods_cgroup_is_found(cgroup: Path, tmp_path: Path) -> None:
    assert pod_folders(accounting_root(tmp_path)) == {UID: cgroup}
    assert used_seconds(cgroup) == 12.5


@pytest.mark.parametrize("text", ["", "no number\n", "usage_usec\n"])
def test_a_counter_that_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu.stat").write_text(text)
    assert used_seconds(tmp_path) is None
    assert used_seconds(tmp_path / "gone") is None


def test_idle_is_who_uses_less_than_the_jobs_threshold(cgroup: Path, tmp_path: Path) -> None:
    now, used = 100.0, 20.0
    activity = ProcessActivity(tmp_path, lambda: now)
    assert activity.readings([POD]) == {}, "one look says nothing yet"

    def after(seconds: float, core_seconds: float) -> float:
        nonlocal now, used
        now, used = now + seconds, used + core_seconds
        use(cgroup, used)
        (reading,) = activity.readings([POD]).values()
        assert (reading.uid, reading.source) == (UID, Source.CPU)
        assert bool(reading.idle_text) == (reading.idle_seconds > 0)
        return reading.idle_seconds

    use(cgroup, used)
    activity.readings([POD])
    assert after(10, 9.0) == 0
    assert [after(10, 0.1) for _ in range(3)] == [0, 10, 20]
    assert after(10, 0.3) == 0, "30 permille"
    assert after(10, 0.0) == 0
    assert after(10, 0.0) == 10


def test_a_pod_that_is_gone_is_not_spoken_of(cgroup: Path, tmp_path: Path) -> None:
    now = 0.0
    activity = ProcessActivity(tmp_path, lambda: now)
    activity.readings([POD])
    now = 10.0
    assert set(activity.readings([POD])) == {UID}
    assert activity.readings([]) == {}
    for path in sorted(cgroup.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    cgroup.rmdir()
    assert activity.readings([POD]) == {}
    assert activity.readings([POD.model_copy(update={"uid": "someone-else"})]) == {}


def _own_cgroup() -> Path | None:
    """A cgroup of this machine that a test may make pods in, or None."""
    root = accounting_root(Path("/sys/fs/cgroup"))
    folder = root / f"robustrl-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    return folder


def test_a_busy_process_in_a_real_cgroup() -> None:
    folder = _own_cgroup()
    if folder is None:
        pytest.skip("no cgroup can be made on this machine")
    pod = folder / f"pod{UID}"
    pod.mkdir()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        (pod / "cgroup.procs").write_text(str(busy.pid))
        began, before = time.monotonic(), used_seconds(pod)
        assert before is not None
        while (used_seconds(pod) or 0) < before + 0.3:
            assert time.monotonic() - began < 30
            time.sleep(0.05)
        assert pod_folders(folder) == {UID: pod}
    finally:
        busy.send_signal(signal.SIGKILL)
        busy.wait()
        for path in (pod, folder):
            path.rmdir()
