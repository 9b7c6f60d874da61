"""Setting conditions: the transition time moves only when the status does, and terminal ones stick."""

from __future__ import annotations

from robustrl_api.names import EventReason
from robustrl_api.status import Condition, ConditionType, Truth
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import timestamp


def condition(draft: Draft, kind: ConditionType, truth: bool | None, reason: str, message: str = "") -> Draft:
    """Set one condition; `truth` None means Unknown."""
    status = Truth.UNKNOWN if truth is None else Truth.TRUE if truth else Truth.FALSE
    before = next((c for c in draft.status.conditions if c.type == kind), None)
    same = before is not None and before.status is status
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[:32_000],
        last_transition_time=before.last_transition_time if before and same else _seconds(draft),
        observed_generation=draft.view.generation,
    )
    if before is None:
        return draft.set(conditions=(*draft.status.conditions, new))
    return draft.set(conditions=tuple(new if c.type == kind else c for c in draft.status.conditions))


def fail(draft: Draft, reason: str, message: str) -> Draft:
    """End the job as Failed, with a diagnosis."""
    draft = condition(draft, ConditionType.FAILED, True, reason, message)
    draft = draft.tell(EventReason.FAILED, f"{reason}: {message}", warning=True)
    return draft.set(finished_time=timestamp(draft.view.now), recovery=None)


def succeed(draft: Draft, message: str) -> Draft:
    """End the job as Succeeded."""
    draft = condition(draft, ConditionType.SUCCEEDED, True, "StepsDone", message)
    draft = draft.tell(EventReason.SUCCEEDED, message)
    return draft.set(finished_time=timestamp(draft.view.now), recovery=None)


def _seconds(draft: Draft) -> str:
    return draft.view.now.strftime("%Y-%m-%dT%H:%M:%SZ")
