"""The pods' processor time, from their cgroups: what the node agent has to say of a pod that holds no GPU.

A pod's cgroup carries the pod's UID in its name, in two spellings: `pod1234-...` with the cgroupfs driver and
`kubepods-burstable-pod1234_....slice` with systemd's (kubelet, pkg/kubelet/cm). Its counter holds the time of all its
processes, those that have ended included.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from robustrl.node.idle_timer import IdleTimer
from robustrl.supervisor.cpu_time import Clock, CpuMeter, ProcessTime
from robustrl_api.node import PodReading, Source, WatchedPod

_POD = re.compile(
    r"^(?:pod|(?:[\w.]*-)?kubepods(?:-burstable|-besteffort)?-pod)([0-9a-f][0-9a-f_-]{7,62})(?:\.slice)?$"
)
MAX_DEPTH = 6
"""Of a pod's cgroup below the root; a kubelet may have a root of its own in between."""
MAX_FOLDERS = 20_000


def pod_uid(folder: str) -> str | None:
    """The UID in the name of a pod's cgroup; None for every other cgroup."""
    match = _POD.match(folder)
    return match[1].replace("_", "-") if match else None


def pod_folders(root: Path) -> dict[str, Path]:
    """The pods' cgroups below `root`, by UID. Their containers' are not looked at."""
    found: dict[str, Path] = {}
    for visited, (folder, children, _) in enumerate(os.walk(root)):
        path = Path(folder)
        here = {uid: child for child in children if (uid := pod_uid(child)) is not None}
        found |= {uid: path / child for uid, child in here.items()}
        deep = len(path.relative_to(root).parts) >= MAX_DEPTH - 1 or visited >= MAX_FOLDERS
        children[:] = [] if deep else [child for child in children if child not in here.values()]
    return found


def accounting_root(root: Path) -> Path:
    """Where the counters of processor time are: in the one hierarchy of version 2, or in version 1's own."""
    return root if (root / "cgroup.controllers").exists() else root / "cpuacct"


def used_seconds(folder: Path) -> float | None:
    """Processor time that a cgroup has used, in seconds of one core; None where it is gone or does not say."""
    try:
        if (folder / "cpu.stat").exists() and not (folder / "cpuacct.usage").exists():
            lines = (folder / "cpu.stat").read_text().splitlines()
            return next((int(line.split()[1]) / 1e6 for line in lines if line.startswith("usage_usec ")), None)
        return int((folder / "cpuacct.usage").read_text()) / 1e9
    except (OSError, ValueError, IndexError):
        return None


class ProcessActivity:
    """Watches the processor time of some pods of this node.

    Args:
        root: the cgroup file system of the node, such as /sys/fs/cgroup.
        clock: monotonic seconds.
    """

    def __init__(self, root: Path, clock: Clock = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._folders: dict[str, Path] = {}
        self._meter: CpuMeter[str] = CpuMeter(self._read, clock)
        self._timers: dict[str, IdleTimer] = {}

    def _read(self, uid: str) -> ProcessTime | None:
        folder = self._folders.get(uid)
        used = used_seconds(folder) if folder else None
        return None if used is None else ProcessTime(used, stopped=False)

    def readings(self, pods: Iterable[WatchedPod]) -> dict[str, PodReading]:
        """By pod UID, of those pods whose cgroup is found. Blocks for the time of reading some small files."""
        watched = {pod.uid: pod for pod in pods}
        if any(uid not in self._folders or not self._folders[uid].exists() for uid in watched):
            self._folders = pod_folders(accounting_root(self._root))
        shares = self._meter.shares(list(watched))
        self._timers = {uid: timer for uid, timer in self._timers.items() if uid in self._folders}
        return {uid: self._judge(watched[uid], share) for uid, share in shares.items()}

    def _judge(self, pod: WatchedPod, share: float) -> PodReading:
        now = self._clock()
        timer = self._timers.setdefault(pod.uid, IdleTimer())
        if share * 1000 >= pod.active_permille:
            timer.active(now)
        else:
            timer.idle(now)
        seconds = timer.seconds(now)
        text = f"all processes of the pod used {share:.1%} of a core" if seconds else ""
        return PodReading(uid=pod.uid, source=Source.CPU, idle_seconds=seconds, idle_text=text)
