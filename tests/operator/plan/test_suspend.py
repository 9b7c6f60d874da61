"""Rule suspend: all pods are given back, the epoch after it is a new one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operator.build import actions, draft, job, names, running_job, with_status

from robustrl_api.names import Role
from robustrl_api.status import ConditionType, holds
from robustrl_operator.analyze import analyze
from robustrl_operator.plan import CreatePod, DeletePod, Relabel, plan
from robustrl_operator.plan.rules import suspend

SUSPENDED = running_job(job(suspend=True))


def test_seats_are_given_up_and_every_pod_deleted() -> None:
    decided = plan(SUSPENDED, {})
    assert decided.status.members == ()
    assert holds(decided.status, ConditionType.SUSPENDED)
    assert sorted(names(actions(decided, DeletePod))) == sorted(p.name for p in SUSPENDED.pods)
    assert not any(action.force for action in actions(decided, DeletePod))
    assert decided.status.epoch == 1, "nothing was at fault"


def test_resumed_in_a_new_epoch() -> None:
    held = plan(SUSPENDED, {}).status
    view = with_status(running_job(), conditions=held.conditions, members=())
    after = suspend.apply(draft(view))
    assert after.status.epoch == 2
    assert not holds(after.status, ConditionType.SUSPENDED)
    assert [event.reason for event in after.events] == ["Resumed"]


def test_resumed_once() -> None:
    view = running_job()
    once = suspend.apply(draft(view))
    assert once.status.epoch == 1
    assert once.events == ()


def test_what_was_futile_before_is_forgotten() -> None:
    """Only the end of a recovery clears the count, and suspending ends it without one."""
    held = plan(with_status(SUSPENDED, restarts_without_progress=3, unstable_restarts=2), {}).status
    after = suspend.apply(draft(with_status(running_job(), **dict(held))))
    assert after.status.recovery is None
    assert (after.status.restarts_without_progress, after.status.unstable_restarts) == (0, 0)


@pytest.mark.parametrize("strategy", ["RoleBased", "WholeJob"])
def test_pods_that_still_go_when_the_job_goes_on_are_no_faults(strategy: str) -> None:
    """They end within their grace period, and the job may be resumed at once."""
    spec = job(recovery={"strategy": strategy})
    decided = plan(running_job(spec.model_copy(update={"suspend": True})), {})
    fenced = {action.uid for action in actions(decided, Relabel) if action.role is Role.FENCED}
    assert fenced == {pod.uid for pod in SUSPENDED.pods}
    going = tuple(replace(pod, role=Role.FENCED, deleting=True) for pod in SUSPENDED.pods)
    view = running_job(spec, status=decided.status, pods=going)
    after = plan(view, analyze(view))
    assert after.status.epoch == 2
    assert (after.status.attempt, after.status.incidents, after.status.suspects) == (0, (), ())
    assert len(actions(after, CreatePod)) == len(going)
