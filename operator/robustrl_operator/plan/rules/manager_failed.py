"""Rule 5: a manager fails: it alone restarts and goes on from its ledger. The paper restarts the job here."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.analyze.verdict import Cause
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import note_incident


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        if pod.origin is not Role.MANAGER or pod.uid in draft.gone:
            continue
        verdict = draft.verdict(pod.uid)
        if verdict.pod_lost:
            draft = note_incident(draft, "manager", pod.name, verdict, "replace the pod (rule 5)", recovered=True)
            draft = draft.delete(pod, force=verdict.node_lost)
        elif verdict.cause is Cause.MANAGER_EXITED:
            decision = "its agent restarts it in place (rule 5)"
            draft = note_incident(draft, "manager", pod.name, verdict, decision, recovered=True)
    return draft
