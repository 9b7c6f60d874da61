"""Rule populate: what is missing is created, what is too much goes, counted by what pods do now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operator.build import SERVICE, actions, draft, failed, job, names, pod, running_job, with_pod, with_status

from robustrl_api.names import Role
from robustrl_api.status import Member, RLJobStatus
from robustrl_operator.analyze import Health, Verdict
from robustrl_operator.plan import CreatePod, DeletePod
from robustrl_operator.plan.rules import populate


def made(of: Any) -> list[str]:
    return [action.role.value for action in actions(of, CreatePod)]


def test_an_empty_job_gets_every_pod_with_its_own_name() -> None:
    view = running_job(job(services=[SERVICE]), status=RLJobStatus(), pods=(), reports={})
    after = populate.apply(draft(view))
    assert made(after) == ["manager", "trainer", "trainer", "rollout", "rollout", "rollout", "rollout",
                           "service", "service"]  # fmt: skip
    assert names(actions(after, CreatePod))[:3] == ["j-manager-0", "j-trainer-1", "j-trainer-2"]
    assert after.status.serial == 9


def test_a_full_job_is_left_alone() -> None:
    assert populate.apply(draft(running_job())).actions == ()


def test_after_a_promotion_it_is_a_rollout_that_is_missing() -> None:
    view = running_job()
    members = (Member(rank=0, pod="j-rollout-6", uid="uid-j-rollout-6"), view.status.members[1])
    after = populate.apply(draft(view, {"j-trainer-1": failed("Node")}).set(members=members))
    assert made(after) == ["rollout"]


@pytest.mark.parametrize(
    ("coming", "made_", "gone"),
    [(0, ["trainer"], []), (1, [], []), (2, [], ["j-trainer-9"])],
    ids=["nobody is coming", "one is coming", "one too many is coming"],
)
def test_one_pod_for_each_vacant_seat(coming: int, made_: list[str], gone: list[str]) -> None:
    view = running_job()
    members = (view.status.members[0], Member(rank=1))
    others = tuple(pod(f"j-trainer-{8 + n}", Role.TRAINER, phase="Pending") for n in range(coming))
    kept = tuple(p for p in view.pods if p.name != "j-trainer-2")
    after = populate.apply(draft(replace(with_status(view, members=members), pods=kept + others)))
    assert made(after) == made_
    assert names(actions(after, DeletePod)) == gone


@pytest.mark.parametrize(
    ("replicas", "made_", "gone"), [(6, 2, []), (4, 0, []), (2, 0, ["j-rollout-5", "j-rollout-6"])]
)
def test_scaling_rollouts_takes_the_youngest(replicas: int, made_: int, gone: list[str]) -> None:
    after = populate.apply(draft(running_job(), {}) if replicas == 4 else draft(
        replace(running_job(), spec=job(rollout={"replicas": replicas}))))  # fmt: skip
    assert made(after) == ["rollout"] * made_
    assert names(actions(after, DeletePod)) == gone


def test_scaling_down_keeps_the_rollouts_that_work() -> None:
    """The oldest may just then hang, or wait for a machine."""
    view = replace(running_job(), spec=job(rollout={"replicas": 2}))
    unwell = {"j-rollout-3": failed("Process", "EngineHung"), "j-rollout-5": Verdict(Health.STARTING)}
    assert sorted(names(actions(populate.apply(draft(view, unwell)), DeletePod))) == ["j-rollout-3", "j-rollout-5"]


@pytest.mark.parametrize(("change", "missing"), [({"deleting": True}, 1), ({"phase": "Pending", "address": ""}, 0)])
def test_pods_on_their_way_out_do_not_count_and_pods_on_their_way_in_do(change: dict[str, Any], missing: int) -> None:
    assert len(made(populate.apply(draft(with_pod(running_job(), "j-rollout-3", **change))))) == missing


def test_services_go_with_the_spec() -> None:
    view = running_job()
    extra = (pod("j-judge-30", Role.SERVICE), pod("j-judge-fast-31", Role.SERVICE))
    spec = job(services=[{**SERVICE, "name": "judge-fast", "replicas": 1}])
    after = populate.apply(draft(replace(view, spec=spec, pods=view.pods + extra)))
    assert names(actions(after, DeletePod)) == ["j-judge-30"]
    assert made(after) == []
