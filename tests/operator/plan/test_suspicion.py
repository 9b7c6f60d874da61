"""Nodes with repeated faults are avoided for a while, and only if there is room elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operator.build import NOW, SECOND, actions, draft, failed, job, running_job, with_status, without_pod

from robustrl_api.status import SuspectNode
from robustrl_operator.plan import CreatePod, DeletePod, plan
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incident import note_incident
from robustrl_operator.plan.rules import populate
from robustrl_operator.plan.standby import promotable
from robustrl_operator.plan.suspicion import suspects
from robustrl_operator.view import JobView, NodeView, timestamp


def faulty(view: JobView, *pods: str) -> Draft:
    after = draft(view)
    for number, pod in enumerate(pods):
        after = note_incident(after, "rollout", pod, failed(evidence=f"fault {number}"), "restart")
    return after


def test_three_faults_make_a_suspect() -> None:
    assert suspects(faulty(running_job(), "j-rollout-3", "j-rollout-3", "j-rollout-4")) == set()
    assert suspects(faulty(running_job(), *["j-rollout-3"] * 3)) == {"n3"}


def test_one_broken_gpu_makes_a_suspect_at_once() -> None:
    broken = failed("Pod", "GpuFailed", "XID 79")
    after = note_incident(draft(running_job()), "rollout", "j-rollout-3", broken, "replace")
    assert suspects(after) == {"n3"}
    assert [s.faults for s in after.status.suspects] == [3]


def test_the_replacement_of_a_pod_on_a_broken_gpu_goes_elsewhere() -> None:
    view = running_job()
    planned = plan(view, draft(view, {"j-trainer-1": failed("Pod", "GpuFailed", "XID 79")}).verdicts)
    (created,) = actions(planned, CreatePod)
    assert created.suspect_nodes == ("n1",)
    assert [member.pod for member in planned.status.members] == ["j-rollout-3", "j-trainer-2"]
    assert [(i.pod, i.cause, i.evidence) for i in planned.status.incidents] == [("j-trainer-1", "GpuFailed", "XID 79")]
    assert [(deleted.name, deleted.force) for deleted in actions(planned, DeletePod)] == [("j-trainer-1", False)]


def test_one_fault_reported_twice_counts_once() -> None:
    after = draft(running_job())
    for _ in range(5):
        after = note_incident(after, "rollout", "j-rollout-3", failed(), "restart")
    assert [s.faults for s in after.status.suspects] == [1]


def test_a_members_node_is_known_when_its_pod_is_gone() -> None:
    after = faulty(without_pod(running_job(), "j-trainer-1"), "j-trainer-1")
    assert [s.name for s in after.status.suspects] == ["n1"]


def suspect(ago: float, faults: int = 3) -> JobView:
    last = timestamp(NOW - ago * SECOND)
    return with_status(running_job(), suspects=(SuspectNode(name="n3", faults=faults, last_time=last),))


def test_it_is_forgotten_after_a_while() -> None:
    assert suspects(draft(suspect(3599))) == {"n3"}
    assert suspects(draft(suspect(3601))) == set()
    after = faulty(suspect(3601, faults=9), "j-rollout-3")
    assert [s.faults for s in after.status.suspects] == [1], "it starts again"


def test_new_pods_rather_go_elsewhere() -> None:
    view = without_pod(suspect(1), "j-rollout-4")
    (created,) = actions(populate.apply(draft(view)), CreatePod)
    assert (created.suspect_nodes, created.avoid_nodes) == (("n3",), ())


@pytest.mark.parametrize(("ago", "shunned"), [(59, ("n3",)), (61, ())])
def test_new_pods_rather_not_go_where_a_fault_was_a_moment_ago(ago: float, shunned: tuple[str, ...]) -> None:
    """Two machines die at once: the pod of the first is gone when the second one's successor is made."""
    view = without_pod(suspect(ago, faults=1), "j-rollout-4")
    (created,) = actions(populate.apply(draft(view)), CreatePod)
    assert created.suspect_nodes == shunned


def machine_lost(ago: float, heard_ago: float | None = None) -> JobView:
    """The machine of one pod that is gone was lost before; the pod of another one is gone now."""
    view = replace(running_job(), now=NOW - ago * SECOND)
    after = note_incident(draft(view), "rollout", "j-rollout-3", failed("Node", "HeartbeatLost"), "replace")
    assert [s.lost_time for s in after.status.suspects] == [timestamp(view.now)]
    node = NodeView("n3", heard=None if heard_ago is None else NOW - heard_ago * SECOND)
    return replace(without_pod(running_job(), "j-rollout-4"), status=after.status, nodes={"n3": node})


@pytest.mark.parametrize(
    ("view", "avoided"),
    [
        pytest.param(machine_lost(59), ("n3",), id="a moment ago"),
        pytest.param(machine_lost(61), (), id="long enough ago for the control plane to have seen it"),
        pytest.param(machine_lost(20, heard_ago=21), ("n3",), id="it spoke before"),
        pytest.param(machine_lost(20, heard_ago=19), (), id="it speaks again"),
    ],
)
def test_no_pod_goes_to_a_machine_that_was_just_lost(view: JobView, avoided: tuple[str, ...]) -> None:
    """However full the others are: to the scheduler the dead one is the only one with room."""
    (created,) = actions(populate.apply(draft(view)), CreatePod)
    assert created.avoid_nodes == avoided


def test_a_machine_stays_lost_when_something_else_fails_on_it() -> None:
    view = machine_lost(20)
    again = note_incident(draft(view), "rollout", "j-rollout-3", failed(evidence="another"), "restart")
    assert [(s.faults, s.lost_time) for s in again.status.suspects] == [(2, timestamp(NOW - 20 * SECOND))]


def test_every_machine_that_died_with_the_first_is_lost_though_one_record_serves_all() -> None:
    """Else the second pod's successor, made once more when the first machine is back, goes to the second, dead one."""
    dead = failed("Node", "HeartbeatLost")
    view = running_job()
    planned = plan(view, draft(view, {"j-trainer-1": dead, "j-trainer-2": dead}).verdicts)
    assert [incident.pod for incident in planned.status.incidents] == ["j-trainer-1"]
    assert [(s.name, s.faults, s.lost_time) for s in planned.status.suspects] == [
        ("n1", 1, timestamp(NOW)), ("n2", 1, timestamp(NOW)),
    ]  # fmt: skip


def test_a_machine_dies_once_whatever_was_on_it() -> None:
    dead = failed("Node", "HeartbeatLost")
    view = running_job()
    planned = plan(view, draft(view, {"j-trainer-1": dead, "j-rollout-3": dead}).verdicts)
    assert sorted(incident.pod for incident in planned.status.incidents) == ["j-rollout-3", "j-trainer-1"]
    assert [(s.name, s.faults) for s in planned.status.suspects] == [("n1", 1), ("n3", 1)]


def test_a_machine_dies_once_where_the_whole_job_restarts_because_of_it() -> None:
    view = running_job()
    view = replace(view, spec=job(recovery={"strategy": "WholeJob"}))
    planned = plan(view, draft(view, {"j-trainer-1": failed("Node", "HeartbeatLost")}).verdicts)
    assert [(s.name, s.faults, s.lost_time) for s in planned.status.suspects] == [("n1", 1, timestamp(NOW))]


def test_others_are_promoted_first() -> None:
    assert [pod.node for pod in promotable(draft(running_job()))] == ["n3", "n4"]
    assert [pod.node for pod in promotable(draft(suspect(1)))] == ["n4", "n5"]
    lonely = replace(suspect(1), spec=job(rollout={"minReplicas": 0}))
    assert [pod.node for pod in promotable(draft(lonely))] == ["n4", "n5", "n6", "n3"], "better than nobody"
