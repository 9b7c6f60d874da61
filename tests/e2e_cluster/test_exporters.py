"""The stand-ins for GPU exporters on the cluster: who is waited for, and what is shown to whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from robustrl_e2e import exporters
from robustrl_e2e.cluster.layout import Cluster

RUNNING = Cluster("x", 3, slot=7)


class Job:
    """Its pods as the operator tells of them: each time the next answer, the last one for ever."""

    running = RUNNING

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers = list(answers)

    def pods(self) -> list[dict[str, Any]]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def pod(name: str, role: str = "trainer", read: bool = True) -> dict[str, Any]:
    return {"name": name, "role": role, "node": "node1", "reading": {"idle": 0} if read else None}


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time passes by sleeping."""
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(exporters, "time", clock)
    return pauses


def test_an_operator_that_tells_of_nobody_yet_is_asked_again(slept: list[float]) -> None:
    exporters._until_read(Job([], [pod("t", read=False)], [pod("t")]))  # type: ignore[arg-type]
    assert len(slept) == 2


def test_whoever_is_not_heard_of_in_time_is_named() -> None:
    job = Job([pod("t"), pod("r", "rollout", read=False), pod("m", "manager", read=False)])
    with pytest.raises(TimeoutError, match=r"within 300 s: r$"):
        exporters._until_read(job)  # type: ignore[arg-type]


def test_a_page_is_for_a_node_that_there_is() -> None:
    shown = exporters.Exporters(Job([pod("t")]))  # type: ignore[arg-type]
    assert 'pod="t"' in (shown.page(RUNNING.worker("node1").address) or "")
    assert 'pod="t"' not in (shown.page(RUNNING.worker("node2").address) or "")
    assert shown.page("favicon.ico") is None
