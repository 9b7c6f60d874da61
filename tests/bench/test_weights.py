"""The benchmark of weights: what fails ends it with a sentence, and a run that was killed leaves nothing for ever."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "bench" / "weights"
NOBODY = 2**22 + 1
"""A pid that no process can have."""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one of its modules, which are scripts that lie side by side."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture
def network(load: Any) -> ModuleType:
    found: ModuleType = load("network")
    return found


class Net:
    """So many machines, of which one cannot pull."""

    def __init__(self, machines: int, broken: int) -> None:
        self.nodes = [None] * machines
        self._broken = broken

    def tell_pull(self, *_: Any, **__: Any) -> None:
        pass

    def pulled(self, number: int) -> None:
        if number == self._broken:
            raise SystemExit(f"machine {number}: no source left")

    def check(self, _number: int) -> bool:
        return True


def test_a_relay_that_breaks_ends_with_why(load: Any) -> None:
    spread = load("spread")
    assert spread.relay(Net(8, broken=0))[1]
    with pytest.raises(SystemExit, match="machine 1: no source left"):
        spread.relay(Net(8, broken=1))


@pytest.fixture
def removed(network: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `ip` is told to remove, where this is left of three runs: of ours, of one that was killed, of others."""
    left = {
        "netns": (f"wb{os.getpid()}n0", f"wb{NOBODY}n0", "rrl-robustrl-node1"),
        "link": ("lo", f"wb{os.getpid()}br", f"wb{NOBODY}br", f"wb{NOBODY}v12", "wbridge0"),
    }
    for kind, names in left.items():
        for name in names:
            (tmp_path / kind / name).mkdir(parents=True)
    monkeypatch.setattr(network, "FOLDERS", {kind: tmp_path / kind for kind in left})
    told: list[str] = []
    monkeypatch.setattr(network, "_run", lambda *words, **_: told.append(" ".join(words)))
    return told


def test_what_a_killed_run_left_is_removed_and_nothing_else(network: ModuleType, removed: list[str]) -> None:
    network.sweep()
    names = (f"netns del wb{NOBODY}n0", f"link del wb{NOBODY}br", f"link del wb{NOBODY}v12")
    assert sorted(removed) == sorted(f"ip {name}" for name in names)


def test_names_fit_the_kernel(network: ModuleType) -> None:
    assert len(f"wb{2**22}v15") <= 15
    assert str(os.getpid()) in network.PREFIX


def test_a_server_counts_once_it_listens(load: Any) -> None:
    perftest = load("perftest")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert perftest._listens(port)
    assert not perftest._listens(port)
    with subprocess.Popen(["false"]) as ended:
        ended.wait()
        with pytest.raises(RuntimeError, match="server ended with 1 before it listened"):
            perftest._await_listening(ended, port)


def test_what_was_measured_before_a_failure_is_kept(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load("table")
    specification = importlib.util.spec_from_file_location("bench_weights", FOLDER / "__main__.py")
    assert specification is not None
    assert specification.loader is not None
    main = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(main)

    def fails(_runs: int) -> Iterator[Any]:
        yield table.Row("one", 1.0, "s")
        raise SystemExit("the second one fails")

    monkeypatch.setattr(main, "PARTS", {"part": fails})
    monkeypatch.setattr(sys, "argv", ["weights", "part", "--out", str(tmp_path / "out.json")])
    with pytest.raises(SystemExit, match="the second one fails"):
        main.main()
    assert [row["what"] for row in json.loads((tmp_path / "out.json").read_text())["rows"]] == ["one"]


def test_a_process_that_gives_no_answer_is_ended(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = load("processes")

    class Now:
        """A timer whose time is over at once."""

        def __init__(self, _seconds: float, act: Any) -> None:
            self.start, self.cancel = act, lambda: None

    monkeypatch.setattr(processes, "threading", SimpleNamespace(Timer=Now))
    silent = processes.Process.__new__(processes.Process)
    silent._process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with pytest.raises(SystemExit, match="no answer for 600 s"), silent._process:
        silent.answer()
