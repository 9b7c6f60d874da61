"""Folders of a cluster and of the cache, and the record of a cluster that runs."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from .errors import ClusterError
from .layout import Cluster, Machine
from .progress import say


def cache_root() -> Path:
    """Where built binaries and images are kept between clusters."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robustrl"


def state_root() -> Path:
    """The parent of all clusters' folders."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "robustrl" / "clusters"


def folder(cluster: str) -> Path:
    return state_root() / cluster


def machine_folder(machine: Machine) -> Path:
    return folder(machine.cluster) / machine.name


def kubeconfig(cluster: str) -> Path:
    """The administrator's kubeconfig."""
    return folder(cluster) / "kubeconfig"


def save(cluster: Cluster) -> None:
    folder(cluster.name).mkdir(parents=True, exist_ok=True)
    write_whole(_record(cluster.name), json.dumps(asdict(cluster)))


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all, whenever this process is killed."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def load(name: str) -> Cluster | None:
    """The recorded cluster of that name, running or not."""
    try:
        return Cluster(**json.loads(_record(name).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def require(name: str) -> Cluster:
    """The recorded cluster of that name, or an error that says how to get one."""
    cluster = load(name)
    if cluster is None:
        raise ClusterError(f"no cluster named {name}: start it with `python -m robustrl_e2e.cluster up --name {name}`")
    return cluster


def recorded() -> tuple[str, ...]:
    """Names of all clusters that have a record on this machine."""
    return tuple(sorted(path.parent.name for path in state_root().glob("[!.]*/cluster.json")))


def forget(name: str) -> None:
    """Remove the record; the folder stays."""
    _record(name).unlink(missing_ok=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One command at a time may change a cluster; others wait. The lock goes with the process that holds it."""
    state_root().mkdir(parents=True, exist_ok=True)
    with (state_root() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command that holds {lock.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _record(name: str) -> Path:
    return folder(name) / "cluster.json"
