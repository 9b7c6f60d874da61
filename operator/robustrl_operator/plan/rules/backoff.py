"""A restart that follows a futile one waits out its backoff, then goes on."""

from __future__ import annotations

from robustrl_api.status import Stage
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import moment


def apply(draft: Draft) -> Draft:
    recovery = draft.status.recovery
    if recovery is None or recovery.stage is not Stage.WAITING_FOR_BACKOFF:
        return draft
    left = moment(recovery.not_before_time) - draft.view.now
    if left.total_seconds() > 0:
        return draft.wait(f"backoff until {recovery.not_before_time}", left)
    return draft.set(recovery=recovery.model_copy(update={"stage": Stage.RESTARTING}))
