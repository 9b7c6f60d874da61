"""A suspended job gives all its pods back; ledger and checkpoints stay, and it goes on from there."""

from __future__ import annotations

from robustrl_api.names import EventReason
from robustrl_api.status import ConditionType
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules.conditions import condition


def apply(draft: Draft) -> Draft:
    was = draft.view.condition(ConditionType.SUSPENDED)
    if draft.spec.suspend:
        draft = condition(draft, ConditionType.SUSPENDED, True, "SuspendRequested", "spec.suspend is true")
        draft = draft.set(members=(), recovery=None)
        return draft if was else draft.tell(EventReason.SUSPENDED, "all pods are given back")
    draft = condition(draft, ConditionType.SUSPENDED, False, "NotSuspended")
    if not was:
        return draft
    # What was futile before says nothing of now, and no recovery is left whose end would clear it.
    draft = draft.set(
        epoch=draft.status.epoch + 1,
        base_step=draft.view.committed_step(),
        restarts_without_progress=0,
        unstable_restarts=0,
    )
    return draft.tell(EventReason.RESUMED, "going on from the last checkpoint")
