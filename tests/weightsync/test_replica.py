"""A replica never serves torn weights, whatever happens in whatever order, crashes included."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightsync.replica import FileMark, Replica, ReplicaState, WrongOrder


class MemoryMark:
    def __init__(self) -> None:
        self.version: str | None = None

    def set(self, version: str) -> None:
        self.version = version

    def clear(self) -> None:
        self.version = None

    def is_set(self) -> bool:
        return self.version is not None


def serving(version: str = "1.1") -> Replica:
    replica = Replica(MemoryMark())
    replica.pull(version)
    replica.verified(version)
    replica.apply(version)
    replica.applied()
    return replica


def test_a_new_version_is_served_only_when_all_of_it_is_applied() -> None:
    replica = serving("1.1")
    for step, wanted in [
        (lambda: replica.pull("1.2"), "1.1"),
        (lambda: replica.verified("1.2"), "1.1"),
        (lambda: replica.apply("1.2"), ""),
        (replica.applied, "1.2"),
    ]:
        step()
        assert (replica.version if replica.serves else "") == wanted


def test_failed_pull_leaves_the_old_version_serving() -> None:
    replica = serving("1.1")
    replica.pull("1.2")
    replica.pull_failed()
    assert (replica.state, replica.version, replica.serves) == (ReplicaState.SERVING, "1.1", True)


def test_failed_apply_leaves_nothing_that_may_serve() -> None:
    replica = serving("1.1")
    replica.pull("1.2")
    replica.verified("1.2")
    replica.apply("1.2")
    replica.apply_failed()
    assert (replica.state, replica.version, replica.serves, replica.torn) == (ReplicaState.EMPTY, "", False, True)


def test_crash_in_an_apply_is_known_to_the_next_process(tmp_path: Path) -> None:
    first = Replica(FileMark(tmp_path / "applying"))
    first.pull("1.1")
    first.verified("1.1")
    first.apply("1.1")
    second = Replica(FileMark(tmp_path / "applying"))
    assert second.torn
    assert not second.serves
    second.have("1.1")
    second.apply("1.1")
    second.applied()
    assert second.serves
    assert not Replica(FileMark(tmp_path / "applying")).torn


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        pytest.param([], "applied", id="nothing was applied"),
        pytest.param([("pull", "a")], "apply", id="not verified"),
        pytest.param([("pull", "a"), ("verified", "a"), ("apply", "a")], "pull", id="pull while applying"),
        pytest.param([("pull", "a"), ("pull", "b")], "verified", id="the older one of two"),
    ],
)
def test_steps_out_of_order_are_refused(steps: list[tuple[str, str]], wrong: str) -> None:
    replica = Replica(MemoryMark())
    for name, version in steps:
        getattr(replica, name)(version)
    with pytest.raises(WrongOrder):
        getattr(replica, wrong)(*([] if wrong == "applied" else ["a"]))


STEPS = st.sampled_from(
    ["pull", "verified", "pull_failed", "apply", "applied", "apply_failed", "have", "lost", "crash"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(STEPS, st.sampled_from(["1.1", "1.2", "2.1"])), max_size=30))
def test_whatever_happens_torn_weights_are_not_served(steps: list[tuple[str, str]]) -> None:
    mark = MemoryMark()
    replica, loaded = Replica(mark), ""
    for name, version in steps:
        if name == "crash":
            replica = Replica(mark)
            loaded = "torn" if loaded == "torn" else ""
            continue
        step = getattr(replica, name)
        try:
            step(*([version] if name in ("pull", "verified", "apply", "have") else []))
        except WrongOrder:
            continue
        if name == "apply":
            loaded = "torn"
        elif name == "applied":
            loaded = replica.version
        elif name == "lost":
            loaded = "torn" if loaded == "torn" else ""
        assert not (replica.serves and loaded == "torn")
        assert not replica.serves or replica.version == loaded
