"""Waits of a start: each names what is missing and shows the log that tells why, and none outlives its machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robustrl_e2e.cluster import control_plane, images, machine, node, progress, state
from robustrl_e2e.cluster.errors import ClusterError
from robustrl_e2e.cluster.layout import Cluster

CLUSTER = Cluster("x", 2, slot=7)
NEVER_READY = SimpleNamespace(missing_ready=lambda: "not ready")


def ready(name: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    return {"metadata": {"name": name}, "status": {"conditions": [condition], "allocatable": {node.GPU: "1"}}}


class Nodes:
    """An API server that knows these nodes."""

    def __init__(self, *names: str) -> None:
        self._items = [ready(name) for name in names]

    def get(self, _path: str) -> dict[str, Any]:
        return {"items": self._items}


def say(path: Path, words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{words}\n")


@pytest.fixture(autouse=True)
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every machine is on and has logs. Time passes by sleeping, and none is given."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "START_SECONDS", -1.0)
    monkeypatch.setattr(machine, "alive", lambda _part: True)
    for part in CLUSTER.machines:
        say(state.machine_folder(part) / "console.log", f"last words of {part.name}")
        for daemon in ("kubelet", "kube-apiserver"):
            say(machine.log(part, daemon), f"{daemon} of {part.name}")


def test_the_log_is_that_of_a_node_that_is_waited_for() -> None:
    with pytest.raises(ClusterError, match=r"(?s)waiting for node2\n.*kubelet of node2"):
        node.wait_ready(CLUSTER, Nodes("node1"), CLUSTER.node_names)  # type: ignore[arg-type]


def nodes() -> None:
    node.wait_ready(CLUSTER, Nodes("node2"), ("node1",))  # type: ignore[arg-type]


def image() -> None:
    images._import(CLUSTER.worker("node1"), images.Image("a", Path("a"), "1"))


def api_server() -> None:
    control_plane.wait_ready(CLUSTER)


@pytest.mark.parametrize(("wait", "part"), [(nodes, "node1"), (image, "node1"), (api_server, "control-plane")])
def test_a_machine_that_has_ended_is_not_waited_for(
    wait: Callable[[], None], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It lives when the wait begins, and has ended a moment later.
    looks = iter([True])
    monkeypatch.setattr(machine, "alive", lambda each: each.name != part or next(looks, False))
    monkeypatch.setattr(progress, "START_SECONDS", 10.0)
    monkeypatch.setattr(control_plane, "Api", lambda _kubeconfig: NEVER_READY)
    monkeypatch.setattr(images, "_ctr", unreachable)
    with pytest.raises(ClusterError, match=f"(?s)^{part} of cluster x is not running.*last words of {part}"):
        wait()


def unreachable(*_: Any, **__: Any) -> str:
    raise ClusterError("connection refused")
