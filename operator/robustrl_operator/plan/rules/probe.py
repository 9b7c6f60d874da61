"""A pod under suspicion is asked directly before anything is concluded from silence or idleness."""

from __future__ import annotations

from robustrl_operator.analyze.verdict import Question
from robustrl_operator.plan.draft import Draft, ProbePod


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        question = draft.verdict(pod.uid).ask
        if question is Question.NONE or not pod.address:
            continue
        seconds = float(draft.spec.detection.probe_seconds) if question is Question.WORKS else None
        draft = draft.act(ProbePod(pod.name, pod.uid, pod.address, seconds))
    return draft
