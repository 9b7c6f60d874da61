"""A job that ended or is suspended holds no pods: machines go back at once, ledger and checkpoints stay."""

from __future__ import annotations

from robustrl_operator.plan.draft import Draft


def apply(draft: Draft) -> Draft:
    if not (draft.ended or draft.spec.suspend):
        return draft
    for pod in draft.view.pods:
        lost = draft.verdict(pod.uid).pod_lost and not pod.deleting
        if pod.uid not in draft.gone:
            draft = draft.delete(pod, force=lost)
    return draft
