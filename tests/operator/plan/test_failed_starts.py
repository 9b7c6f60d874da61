"""Pods that fail before they are heard of: the next is made at once, then after pauses that double."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.operator.build import SECOND, actions, job, names, pod, running_job, without_pod

from robustrl_api.names import Role
from robustrl_api.status import ConditionType
from robustrl_operator.analyze import analyze
from robustrl_operator.plan import CreatePod, DeletePod, Plan, plan
from robustrl_operator.view import JobView, PodView, moment


def refused(name: str, origin: Role) -> PodView:
    """A pod that its node does not take."""
    return pod(name, origin, phase="Failed", reason="OutOfnvidia.com/gpu", address="")


def decide(view: JobView) -> Plan:
    return plan(view, analyze(view))


def after(view: JobView, decided: Plan, *others: PodView, later: timedelta = SECOND) -> JobView:
    """The plan's status written, its deletions done, and these pods there instead."""
    gone = {action.uid for action in actions(decided, DeletePod)}
    pods = tuple(each for each in view.pods if each.uid not in gone) + others
    return replace(view, status=decided.status, pods=pods, now=view.now + later)


ROLES = {"rollout": "j-rollout-3", "manager": "j-manager-0", "trainer": "j-trainer-1"}


@pytest.mark.parametrize("role", ROLES)
def test_the_second_that_fails_at_its_start_is_followed_after_a_pause(role: str) -> None:
    view = running_job(job(rollout={"minReplicas": 4}))  # none is borrowed for a trainer
    view = without_pod(view, ROLES[role])
    view = after(view, decide(view), refused(f"j-{role}-30", Role(role)))
    first = decide(view)
    assert names(actions(first, DeletePod)) == [f"j-{role}-30"]
    assert role in [action.role.value for action in actions(first, CreatePod)]
    view = after(view, first, refused(f"j-{role}-31", Role(role)))
    second = decide(view)
    assert role not in [action.role.value for action in actions(second, CreatePod)]
    assert second.wake == 5 * SECOND
    assert role in [action.role.value for action in actions(decide(after(view, second, later=6 * SECOND)), CreatePod)]


def test_the_pause_doubles_up_to_the_largest_and_the_condition_tells_of_it() -> None:
    view, pauses = without_pod(running_job(), "j-rollout-3"), []
    for serial in range(30, 40):
        view = after(view, decide(view), refused(f"j-rollout-{serial}", Role.ROLLOUT))
        decided = decide(view)
        role = next(each for each in decided.status.roles if each.name == "rollout")
        pauses.append(role.next_start_time and (view.now, role.next_start_time))
        view = after(view, decided, later=timedelta(seconds=601))
    waits = [0 if not each else round((moment(each[1]) - each[0]).total_seconds()) for each in pauses]
    assert waits == [0, 5, 10, 20, 40, 80, 160, 320, 600, 600]
    said = next(each for each in decided.status.conditions if each.type == ConditionType.DEGRADED)
    assert "rollout failed to start 10 times: pod j-rollout-39 failed: OutOfnvidia.com/gpu" in said.message


def test_a_pod_that_may_not_be_made_is_asked_for_again_after_a_pause() -> None:
    """A quota that is used up: what else the job needs goes on meanwhile."""
    view, made = without_pod(running_job(), "j-rollout-3"), []
    for _ in range(3):
        decided = decide(view)
        made.append(len(actions(decided, CreatePod)))
        view = replace(after(view, decided), refused={"rollout": "exceeded quota: gpus"})
    assert made == [1, 1, 0]
    said = next(each for each in decided.status.conditions if each.type == ConditionType.DEGRADED)
    assert "rollout failed to start 2 times: exceeded quota: gpus" in said.message
    (event,) = [event for event in decided.events if event.reason == "PodRefused"]
    assert (event.message, event.warning) == ("rollout: exceeded quota: gpus", True)
    quiet = decide(replace(view, status=decided.status, refused={}))
    assert not actions(quiet, CreatePod)
    assert "exceeded quota" in next(r.failed_start for r in quiet.status.roles if r.name == "rollout")


def test_a_complete_role_forgets() -> None:
    view = without_pod(running_job(), "j-rollout-3")
    for serial in (30, 31):
        view = after(view, decide(view), refused(f"j-rollout-{serial}", Role.ROLLOUT))
    assert decide(view).status.roles[1].failed_starts == 2
    decided = decide(running_job(status=decide(view).status))
    role = next(each for each in decided.status.roles if each.name == "rollout")
    assert (role.failed_starts, role.next_start_time) == (0, "")


def test_a_pod_that_worked_is_replaced_at_once_however_often() -> None:
    """Evictions of pods that worked are no reason to wait: their machines are asked back."""
    view = running_job()
    for name in ("j-rollout-3", "j-rollout-4", "j-rollout-5"):
        pods = tuple(replace(p, phase="Failed", reason="Evicted") if p.name == name else p for p in view.pods)
        decided = decide(replace(view, pods=pods))
        assert len(actions(decided, CreatePod)) == 1
        assert all(not role.next_start_time for role in decided.status.roles)
