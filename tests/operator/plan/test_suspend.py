"""Rule suspend: all pods are given back, the epoch after it is a new one."""

from __future__ import annotations

from tests.operator.build import actions, draft, job, names, running_job, with_status

from robustrl_api.status import ConditionType, holds
from robustrl_operator.plan import DeletePod, plan
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
