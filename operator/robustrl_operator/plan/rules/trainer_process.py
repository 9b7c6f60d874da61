"""Rule 2: a trainer's process failed and its pod is well: all trainer workers restart in place, from memory."""

from __future__ import annotations

from robustrl_api.names import EventReason
from robustrl_api.spec import Strategy
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import restart_trainers


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is Strategy.WHOLE_JOB or draft.status.epoch != draft.view.status.epoch:
        return draft
    for member in draft.status.members:
        fault = draft.verdict(member.uid) if member.uid else None
        if fault is not None and fault.failed:
            decision = "restart the trainers' workers in place (rule 2)"
            draft = restart_trainers(draft, fault, member.pod, draft.status.members, decision)
            return draft.tell(EventReason.TRAINER_RESTARTED, f"epoch {draft.status.epoch}, no pod is replaced")
    return draft
