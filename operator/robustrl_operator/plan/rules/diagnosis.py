"""Faults in what the user gave us end the job with the field or file to mend: a restart would meet them again."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.analyze.verdict import UNMENDABLE, Cause
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules.conditions import fail
from robustrl_operator.view import PodView


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        verdict = draft.verdict(pod.uid)
        if verdict.failed and verdict.cause in UNMENDABLE:
            return fail(draft, verdict.cause, verdict.evidence + _remedy(draft, pod, verdict.cause))
    return draft


def _remedy(draft: Draft, pod: PodView, cause: Cause) -> str:
    """Where to look, where the pod's template is what is wrong; complaints of the agent name it themselves."""
    if cause is not Cause.BAD_IMAGE:
        return f" (role {pod.origin})"
    own = pod.origin is not Role.ROLLOUT or draft.spec.rollout.template is not None
    role = pod.origin.value if own else Role.TRAINER.value
    return f" (check the image in spec.{role}.template and what its node may pull)"
