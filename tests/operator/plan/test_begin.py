"""Rule begin: every condition exists from the first visit."""

from __future__ import annotations

from tests.operator.build import draft, running_job

from robustrl_api.status import ConditionType, RLJobStatus
from robustrl_operator.plan.rules import begin

NEW = running_job(status=RLJobStatus(), pods=(), reports={})


def test_all_conditions_are_unknown_at_first() -> None:
    after = begin.apply(draft(NEW))
    assert {c.type: c.status.value for c in after.status.conditions} == dict.fromkeys(ConditionType, "Unknown")
    assert [event.reason for event in after.events] == ["Started"]


def test_second_visit_changes_nothing() -> None:
    view = running_job(status=begin.apply(draft(NEW)).status)
    assert begin.apply(draft(view)) == draft(view)
