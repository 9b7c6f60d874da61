"""After a restart of the whole job the pods of the attempt before go, whoever wrote the new attempt into status.

Their deletion is an effect of status like any other: an operator that died right after the write leaves the rest to
its successor.
"""

from __future__ import annotations

from robustrl_operator.plan.draft import Draft


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        if pod.attempt < draft.status.attempt and pod.uid not in draft.gone:
            draft = draft.delete(pod, force=draft.verdict(pod.uid).node_lost)
    return draft
