"""A silent pod is asked directly before anything is concluded from its silence."""

from __future__ import annotations

from robustrl_operator.plan.draft import Draft, ProbePod


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        if draft.verdict(pod.uid).probe and pod.address:
            draft = draft.act(ProbePod(pod.name, pod.uid, pod.address))
    return draft
