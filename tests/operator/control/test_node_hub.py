"""What is kept of node agents' reports: of whose pods, for how long, and when somebody is woken by it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.operator.build import NOW

from robustrl_api.node import AsIf, NodeReport, PodReading, Source, Xid, XidSeverity
from robustrl_operator.control.node_hub import PRESENT, NodeHub, Placed


def placed(name: str, node: str = "n1", uid: str = "", as_if: str = "") -> dict[str, Placed]:
    uid = uid or f"uid-{name}"
    return {uid: Placed(uid, "rl", name, node, as_if=as_if)}


def reading(name: str, *codes: int, severity: XidSeverity = XidSeverity.GPU, idle: float = 7) -> PodReading:
    xids = tuple(Xid(code=code, gpu="GPU-0", severity=severity) for code in codes)
    return PodReading(uid=f"uid-{name}", source=Source.GPU, xids=xids, idle_seconds=idle)


class Desk:
    """A hub, and whom it woke."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.now = NOW
        self.hub = NodeHub(lambda: self.now, lambda pod: self.woken.append(pod.name))

    def report(self, node: str, *readings: PodReading) -> list[str]:
        """The names of the pods that the node is asked to look at."""
        return [pod.name for pod in self.hub.take(NodeReport(node=node, pods=readings)).pods]

    def idle(self, name: str) -> float | None:
        observed = self.hub.observed(f"uid-{name}")
        return observed.reading.idle_seconds if observed else None


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.hub.watch("rl/a", placed("a-0") | placed("a-1", "n2"))
    desk.hub.watch("rl/b", placed("b-0"))
    return desk


def test_a_node_is_told_its_own_pods_of_all_jobs(desk: Desk) -> None:
    assert desk.report("n1") == ["a-0", "b-0"]
    assert desk.report("n2") == ["a-1"]
    assert desk.report("n9") == []


def test_a_node_is_told_what_to_say_on_purpose_of_which_pod() -> None:
    hub = NodeHub(lambda: NOW, lambda pod: None)
    hub.watch("rl/a", placed("a-0", as_if=AsIf.STUCK) | placed("a-1"))
    assert {pod.name: pod.as_if for pod in hub.take(NodeReport(node="n1")).pods} == {"a-0": "Stuck", "a-1": ""}
    hub.watch("rl/a", placed("a-0") | placed("a-1"))
    assert {pod.name: pod.as_if for pod in hub.take(NodeReport(node="n1")).pods} == {"a-0": "", "a-1": ""}


def test_a_reading_is_kept_with_its_time(desk: Desk) -> None:
    desk.report("n1", reading("a-0"))
    observed = desk.hub.observed("uid-a-0")
    assert observed is not None
    assert (observed.reading.idle_seconds, observed.at) == (7, NOW)
    desk.report("n1", reading("a-0", idle=17))
    assert desk.idle("a-0") == 17


def test_a_node_speaks_only_for_its_own_pods(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.report("n1", reading("a-1", 79), reading("a-0"))
    assert (desk.idle("a-1"), desk.idle("a-0")) == (None, 7)
    assert desk.woken == []
    assert "node n1 spoke for pod uid-a-1" in caplog.text


def test_strangers_pods_are_dropped_in_silence(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.report("n1", reading("nobodys", 79))
    assert (desk.idle("nobodys"), caplog.text) == (None, "")


def test_what_was_said_of_a_pod_goes_with_it(desk: Desk) -> None:
    desk.report("n1", reading("a-0"), reading("b-0"))
    desk.hub.watch("rl/a", placed("a-1", "n2"))
    assert (desk.idle("a-0"), desk.idle("b-0")) == (None, 7)
    assert desk.report("n1", reading("a-0")) == ["b-0"]
    assert desk.idle("a-0") is None, "a late report changes nothing"


def test_a_successor_of_the_same_name_inherits_nothing(desk: Desk) -> None:
    desk.report("n1", reading("b-0"))
    desk.hub.watch("rl/b", placed("b-0", uid="uid-new"))
    assert desk.idle("b-0") is None
    assert desk.hub.observed("uid-new") is None


def test_a_pod_stays_known_while_others_of_its_job_come_and_go(desk: Desk) -> None:
    desk.report("n1", reading("a-0"))
    desk.hub.watch("rl/a", placed("a-0") | placed("a-2"))
    assert desk.idle("a-0") == 7
    assert desk.report("n1") == ["b-0", "a-0", "a-2"]


def test_a_job_that_is_gone_leaves_nothing(desk: Desk) -> None:
    desk.report("n1", reading("a-0"))
    desk.hub.watch("rl/a", {})
    desk.hub.watch("rl/b", {})
    assert (desk.report("n1"), desk.report("n2"), desk.idle("a-0")) == ([], [], None)


def test_what_keeps_a_node_from_seeing_is_said_once_and_counted(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for problem in ("refused 1", "refused 2", ""):
        desk.hub.take(NodeReport(node="n1", problem=problem))
        desk.hub.take(NodeReport(node="n2"))
        assert desk.hub.problems() == {"n1": problem, "n2": ""}
    assert [record.getMessage() for record in caplog.records] == [
        "node n1: nothing is known of its GPUs: refused 1",
        "node n1: its GPUs are seen again",
    ]
    desk.now = NOW + PRESENT + timedelta(seconds=1)
    desk.hub.take(NodeReport(node="n2"))
    assert desk.hub.problems() == {"n2": ""}, "who does not report is not counted"


def test_only_a_new_fault_of_a_gpu_wakes_somebody(desk: Desk) -> None:
    desk.report("n1", reading("a-0"))
    desk.report("n1", reading("a-0", 31, severity=XidSeverity.APPLICATION))
    assert desk.woken == []
    desk.report("n1", reading("a-0", 79))
    desk.report("n1", reading("a-0", 79))
    assert desk.woken == ["a-0"]
    desk.report("n1", reading("a-0", 79, 48))
    assert desk.woken == ["a-0", "a-0"]
