"""Settings of the whole box that a cluster changes, saved before the first cluster and put back after the last.

A kubelet writes the vm.* and kernel.* ones itself when it starts; a dozen kubelets and containerds need more inotify
instances than the usual 128; `ip netns` leaves a mount on /run/netns; volumes need a folder to be mounted on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import mounts, state, storage
from .process import run

NETNS_FOLDER = Path("/run/netns")
MIN_INOTIFY_INSTANCES = 8192
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "fs/inotify/max_user_instances",
)


def prepare() -> None:
    """Save the settings unless another cluster did, then make room for many kubelets."""
    with state.locked("_kernel"):
        if not _saved().exists():
            state.write_whole(_saved(), json.dumps(_before()))
        instances = _path("fs/inotify/max_user_instances")
        if int(instances.read_text()) < MIN_INOTIFY_INSTANCES:
            instances.write_text(str(MIN_INOTIFY_INSTANCES))


def restore() -> None:
    """Put the settings back if no native cluster is left on this machine."""
    with state.locked("_kernel"):
        if not _saved().exists() or _native_cluster_left():
            return
        before = json.loads(_saved().read_text())
        for name, value in before["settings"].items():
            if _path(name).read_text().strip() != value:
                _path(name).write_text(value)
        if not before["netns"]:
            _remove_netns_folder()
        # Removing a folder takes away what any other namespace has mounted on it.
        if not before.get("volumes", True):  # absent in a record of an older version
            storage.forget()
        _saved().unlink()


def _native_cluster_left() -> bool:
    clusters = (state.load(name) for name in state.recorded())
    return any(cluster is not None and cluster.provider == "native" for cluster in clusters)


def _remove_netns_folder() -> None:
    if NETNS_FOLDER.exists() and not any(NETNS_FOLDER.iterdir()):
        for _ in range(mounts.points().count(str(NETNS_FOLDER))):  # two `ip netns add` at once both mount it
            run("umount", NETNS_FOLDER)
        NETNS_FOLDER.rmdir()


def _before() -> dict[str, Any]:
    return {"settings": _read(), "netns": NETNS_FOLDER.exists(), "volumes": storage.MOUNT_POINT.exists()}


def _read() -> dict[str, str]:
    return {name: _path(name).read_text().strip() for name in SETTINGS if _path(name).exists()}


def _path(name: str) -> Path:
    return Path("/proc/sys") / name


def _saved() -> Path:
    return state.state_root() / "kernel.json"
