"""A job that ended or is suspended holds no pods: machines go back at once, ledger and checkpoints stay.

Those of a suspended job are fenced: should it go on before they are gone, they are neither its own nor missing.
"""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.plan.draft import Draft, Relabel


def apply(draft: Draft) -> Draft:
    if not (draft.ended or draft.spec.suspend):
        return draft
    for pod in draft.view.pods:
        if pod.uid in draft.gone:
            continue
        if pod.role is not Role.FENCED and not draft.ended:
            draft = draft.act(Relabel(pod.name, pod.uid, Role.FENCED, pod.epoch))
        draft = draft.delete(pod, force=draft.verdict(pod.uid).node_lost)
    return draft
