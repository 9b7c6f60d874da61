"""Rule 5: a manager fails: it alone restarts and goes on from its ledger. The paper restarts the job here."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.analyze.verdict import Cause
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.replacement import replace_or_record


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        if draft.role_of(pod) is Role.MANAGER and pod.uid not in draft.gone:
            draft = replace_or_record(draft, pod, Role.MANAGER, Cause.MANAGER_EXITED, rule=5)
    return draft
