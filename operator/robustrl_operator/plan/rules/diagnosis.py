"""Faults in what the user gave us end the job with the field or file to mend: a restart would meet them again."""

from __future__ import annotations

from robustrl_operator.analyze.verdict import UNMENDABLE
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules.conditions import fail


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        verdict = draft.verdict(pod.uid)
        if verdict.failed and verdict.cause in UNMENDABLE:
            return fail(draft, verdict.cause, f"{verdict.evidence} (role {pod.origin})")
    return draft
