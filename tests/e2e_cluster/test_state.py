import re
import time
from pathlib import Path

import pytest

from robustrl_e2e.cluster import cgroups, cli, native, state, trash
from robustrl_e2e.cluster.errors import ClusterError, told
from robustrl_e2e.cluster.layout import Cluster
from robustrl_e2e.cluster.preflight import Need


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_cluster_is_remembered() -> None:
    cluster = Cluster("x", 3, slot=7)
    state.save(cluster)
    assert state.load("x") == state.require("x") == cluster
    assert state.recorded() == ("x",)


@pytest.mark.parametrize("content", ["", "{}", '{"name": "X!", "nodes": 1}'])
def test_a_record_that_was_cut_off_is_no_cluster(content: str) -> None:
    state.save(Cluster("x", 3))
    (state.folder("x") / "cluster.json").write_text(content)
    assert state.load("x") is None


def test_a_command_on_no_cluster_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--name", "none"]) == 1
    assert "up --name none" in capsys.readouterr().err


def test_what_is_recorded_survives_a_writer_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    state.save(Cluster("x", 3))

    def half(path: Path, text: str) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(KeyboardInterrupt):
        state.save(Cluster("x", 5))
    assert state.require("x").nodes == 3


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted: `up` again goes on"),
        (OSError(28, "No space left on device", "/somewhere"), 1, "error: .*No space left on device: '/somewhere'"),
    ],
)
def test_what_ends_a_command_early_is_told_in_a_sentence(
    error: BaseException, status: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(cli.lifecycle, "up", fails)
    assert cli.main(["up"]) == status
    assert re.match(words, capsys.readouterr().err)


@pytest.mark.parametrize("command", ["node-kill node1", "node-slow node1 0", "api-stop 1", "images"])
def test_a_cluster_of_before_the_last_boot_is_not_hurt_but_started(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state.save(Cluster("x", 3))
    assert cli.main([*command.split(), "--name", "x"]) == 1
    assert "cluster x is not running: start it with" in (said := capsys.readouterr().err)
    assert "up --name x --nodes 3" in said


def test_a_tag_without_a_dockerfile_is_no_wish_for_the_base(
    capsys: pytest.CaptureFixture[str],
) -> None:
    state.save(Cluster("x", 3, "kind"))
    assert cli.main(["images", "--name", "x", "--tag", "mine:1"]) == 1
    assert "give --dockerfile too" in capsys.readouterr().err


def test_a_cgroup_that_cannot_be_used_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory rdma")
    (tmp_path / "cgroup.subtree_control").mkdir()  # nothing can be written there
    with pytest.raises(ClusterError, match=rf"cgroup {tmp_path} does not give its controllers.*hold no processes"):
        cgroups._delegate(tmp_path)


def test_the_lock_of_one_cluster_does_not_hold_another_s() -> None:
    with state.locked("x"), state.locked("y"):
        pass
    with state.locked("x"):
        pass


def test_a_folder_in_the_trash_is_no_cluster_any_more() -> None:
    state.save(Cluster("x", 3))
    (state.folder("x") / "node1").mkdir()
    trash.throw_away(state.folder("x"))
    assert not state.folder("x").exists()
    assert state.recorded() == ()
    deadline = time.monotonic() + 10
    while any(state.state_root().glob(f"{trash.PREFIX}*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_missing_is_found_by_name_or_path() -> None:
    assert Need("sh", "dash").present
    assert Need("/proc/self/stat", "kernel").present
    assert not Need("no-such-program-at-all", "x").present


def test_a_cluster_that_is_too_small_is_told_of_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(lambda: len(native._mend(Cluster("x", 3), 9).node_names)) == 1
    assert re.match(r"error: .* 3 nodes, and 9 are needed; .* make cluster-down CLUSTER=x", capsys.readouterr().err)
