"""First visit: every condition exists from the start, so that `kubectl wait` has something to wait for."""

from __future__ import annotations

from robustrl_api.names import EventReason
from robustrl_api.status import ConditionType
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules.conditions import condition
from robustrl_operator.view import timestamp


def apply(draft: Draft) -> Draft:
    if draft.status.started_time:
        return draft
    for kind in ConditionType:
        draft = condition(draft, kind, None, "Pending")
    return draft.set(started_time=timestamp(draft.view.now)).tell(EventReason.STARTED, "job accepted")
