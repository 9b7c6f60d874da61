import io
from pathlib import Path

import pytest

from robustrl_e2e.cluster import progress
from robustrl_e2e.cluster.errors import ClusterError
from robustrl_e2e.cluster.progress import Step, wait_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_line_is_rewritten_on_a_terminal() -> None:
    out = Terminal()
    step = Step("building", out)
    step.update("package one")
    step.update("package two")
    step.end("done in")
    assert out.getvalue().count("\n") == 1
    assert "package two" in out.getvalue()


def test_a_log_gets_no_line_for_every_update() -> None:
    out = io.StringIO()
    step = Step("building", out)
    for _ in range(100):
        step.update("working")
    step.end("done in")
    assert out.getvalue().count("\n") == 1


def test_waiting_ends_when_nothing_is_missing() -> None:
    rest = iter(["two nodes", "one node", ""])
    wait_for("nodes", lambda: next(rest), every=0)


def test_waiting_too_long_shows_what_is_missing_and_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "START_SECONDS", 0.0)
    log = tmp_path / "kubelet.log"
    log.write_text("first\nno such cgroup\n")
    with pytest.raises(ClusterError, match=r"(?s)missing after 0 s: node1\n.*no such cgroup"):
        wait_for("nodes", lambda: "node1", every=0, log=lambda: log)
