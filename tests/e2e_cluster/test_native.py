"""Starting a cluster again after a start that was interrupted, and beside the end of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robustrl_e2e.cluster import native, state
from robustrl_e2e.cluster.layout import Cluster

CLUSTER = Cluster("x", 2, slot=7)


class Interrupted(Exception):
    pass


def interrupted(*_: Any) -> None:
    raise Interrupted


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done to the box, in order; nothing of it really is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    calls: list[str] = []

    def note(module: str, *names: str) -> None:
        for name in names:
            what = f"{module}.{name}"

            def call(*_: Any, what: str = what, **__: Any) -> None:
                calls.append(what)

            monkeypatch.setattr(getattr(native, module), name, call)

    note("images", "load", "pause")
    note("dns", "install")
    note("storage", "install", "prepare")
    note("control_plane", "wait_ready", "configure", "daemons")
    note("node", "wait_ready", "configure", "daemons")
    note("network", "add_bridge", "add_machine", "host_routes", "link_is_up")
    note("machine", "boot", "find")
    note("binaries", "root")
    note("kernel", "prepare")
    monkeypatch.setattr(native.network, "host_routes", frozenset)
    monkeypatch.setattr(native.network, "link_is_up", lambda _part: True)
    monkeypatch.setattr(native.machine, "alive", lambda _part: True)
    monkeypatch.setattr(native.os, "sync", lambda: None)
    return calls


FURNITURE = ["images.load", "dns.install", "storage.install", "node.wait_ready"]


def furniture(done: list[str]) -> list[str]:
    return [call for call in done if call in FURNITURE]


def test_a_start_that_was_interrupted_is_finished_by_the_next_one(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(native.dns, "install", interrupted)
        with pytest.raises(Interrupted):
            native._start(CLUSTER.name, CLUSTER.nodes)
    done.clear()
    cluster = state.require(CLUSTER.name)
    native._mend(cluster, cluster.nodes)
    assert furniture(done) == FURNITURE


def test_a_cluster_that_runs_is_left_as_it_is(done: list[str]) -> None:
    cluster = native._start(CLUSTER.name, CLUSTER.nodes)
    assert furniture(done) == FURNITURE
    done.clear()
    native._mend(cluster, cluster.nodes)
    assert furniture(done) == []


def test_the_end_of_another_cluster_takes_nothing_back_that_this_one_has_prepared(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(native.kernel, "prepare", lambda: seen.append(state.recorded()))
    native._start(CLUSTER.name, CLUSTER.nodes)
    assert seen == [(CLUSTER.name,)]
