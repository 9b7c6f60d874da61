"""The job has succeeded when every rank's training script ended well in the current epoch."""

from __future__ import annotations

from robustrl_operator.analyze.verdict import Health
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules.conditions import succeed


def apply(draft: Draft) -> Draft:
    members = draft.status.members
    if not members or any(draft.verdict(m.uid).health is not Health.FINISHED for m in members):
        return draft
    step = draft.view.committed_step()
    draft = draft.set(step=step)
    return succeed(draft, f"the training script ended after step {step}")
