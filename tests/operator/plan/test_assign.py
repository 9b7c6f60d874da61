"""Assignments follow from status and pods alone, so every operator gives the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operator.build import draft, job, running_job, with_pod, with_status, without_pod

from robustrl_api.control import Assignment
from robustrl_api.names import Role
from robustrl_api.status import Member, RecoveryStatus, Stage
from robustrl_operator.plan.assign import assignments
from robustrl_operator.plan.rules.conditions import succeed
from robustrl_operator.view import JobView, NodeView


def given(view: JobView, name: str) -> Assignment:
    return assignments(view)[f"uid-{name}"]


def test_a_trainer_is_told_everything_it_needs_to_meet_the_others() -> None:
    view = running_job(job(trainer={"processesPerPod": 4}))
    second = given(view, "j-trainer-2")
    assert (second.role, second.run, second.epoch, second.rank, second.world_size) == (Role.TRAINER, True, 1, 1, 8)
    assert second.rendezvous == "10.0.0.1:29501" == given(view, "j-trainer-1").rendezvous
    assert second.manager == "http://10.0.0.0:8300"
    assert {peer.pod: peer.rank for peer in second.peers} == {
        "j-manager-0": -1, "j-trainer-1": 0, "j-trainer-2": 1,
        "j-rollout-3": -1, "j-rollout-4": -1, "j-rollout-5": -1, "j-rollout-6": -1,
    }  # fmt: skip


def test_trainers_are_told_how_long_a_phase_may_last() -> None:
    view = running_job(job(detection={"trainer": {"phaseLeaseSeconds": 3600}}))
    assert given(view, "j-trainer-2").phase_lease_seconds == 3600.0


def test_each_epoch_meets_at_a_port_of_its_own() -> None:
    ports = {given(with_status(running_job(), epoch=epoch), "j-trainer-1").rendezvous for epoch in (1, 2, 3)}
    assert len(ports) == 3


VACANT = (running_job().status.members[0], Member(rank=1))


@pytest.mark.parametrize(
    ("status", "runs"),
    [
        pytest.param({}, True, id="all seats are taken"),
        pytest.param({"members": VACANT}, False, id="a seat is vacant"),
        pytest.param({"epoch": 0}, False, id="before the first epoch"),
        pytest.param({"recovery": RecoveryStatus(stage=Stage.RESTARTING)}, True, id="restarting"),
        pytest.param({"recovery": RecoveryStatus(stage=Stage.WAITING_FOR_BACKOFF)}, False, id="backoff"),
        pytest.param({"recovery": RecoveryStatus(stage=Stage.WAITING_FOR_POD)}, False, id="a pod is awaited"),
    ],
)
def test_when_trainers_run(status: dict[str, Any], runs: bool) -> None:
    view = with_status(running_job(), **status)
    assert given(view, "j-trainer-1").run is runs
    assert given(view, "j-rollout-3").run, "rollouts generate meanwhile"


def test_status_decides_not_the_label() -> None:
    members = (Member(rank=0, pod="j-rollout-6", uid="uid-j-rollout-6"), running_job().status.members[1])
    view = with_status(running_job(), members=members, epoch=2)
    assert (given(view, "j-rollout-6").role, given(view, "j-rollout-6").rank) == (Role.TRAINER, 0)
    assert not given(view, "j-trainer-1").run, "its seat is another's"
    stale = with_pod(running_job(), "j-rollout-6", role=Role.TRAINER)
    assert (given(stale, "j-rollout-6").role, given(stale, "j-rollout-6").run) == (Role.FENCED, False)


def test_nobody_runs_in_a_suspended_or_ended_job() -> None:
    ended = running_job(status=succeed(draft(running_job()), "done").status)
    for view in (running_job(job(suspend=True)), ended):
        assert not any(assignment.run for assignment in assignments(view).values())


def test_the_etag_changes_exactly_with_the_rest() -> None:
    view = running_job()
    same, other = given(replace(view, now=view.now.replace(hour=10)), "j-trainer-1"), with_status(view, epoch=2)
    assert given(view, "j-trainer-1").etag == same.etag
    assert given(view, "j-trainer-1").etag != given(other, "j-trainer-1").etag
    assert given(view, "j-trainer-1").etag != given(without_pod(view, "j-rollout-3"), "j-trainer-1").etag


@pytest.mark.parametrize(
    ("patch", "standing_by"),
    [
        ({}, ["j-rollout-3", "j-rollout-4"]),
        ({"recovery": {"standby": {"reserve": 1}}}, ["j-rollout-3"]),
        ({"recovery": {"standby": {"reserve": 9}}}, ["j-rollout-3", "j-rollout-4"]),
        ({"rollout": {"minReplicas": 3}}, ["j-rollout-3"]),
        ({"recovery": {"standby": {"mode": "Off"}}}, []),
        ({"mode": "Sync", "maxStaleness": 0}, []),
        ({"trainer": {"processesPerPod": 4, "parallelism": {"tensor": 8}}}, ["j-rollout-3", "j-rollout-4"]),
    ],
    ids=["one data-parallel group", "a field decides", "no more than may be borrowed", "minReplicas", "Off", "Sync",
         "the largest parallel size"],
)  # fmt: skip
def test_who_stands_by(patch: dict[str, Any], standing_by: list[str]) -> None:
    told = assignments(running_job(job(**patch)))
    assert sorted(uid.removeprefix("uid-") for uid, each in told.items() if each.standby) == standing_by


@pytest.mark.parametrize(
    ("name", "node_ready", "known"),
    [
        pytest.param("j-trainer-2", True, True, id="a trainer hands out its checkpoints until it has gone"),
        pytest.param("j-trainer-2", False, False, id="not from a lost node"),
        pytest.param("j-rollout-3", True, False, id="an engine that leaves gets no more requests"),
    ],
)
def test_peers_that_are_about_to_go(name: str, node_ready: bool, known: bool) -> None:
    view = with_pod(running_job(), name, deleting=True)
    view = replace(view, nodes={**view.nodes, view.by_uid[f"uid-{name}"].node: NodeView("n", ready=node_ready)})
    assert (name in {peer.pod for peer in given(view, "j-trainer-1").peers}) is known
