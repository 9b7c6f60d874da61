"""Rule 1: a rollout's pod is lost: it is fenced and replaced, and training is not disturbed.

Its half-finished trajectories continue on other engines (the managers see to that as soon as it leaves the
roster); the replacement pulls the current weights from a neighbour before it is admitted. An engine's process that
exits is restarted in place by its agent; here it is only put on record.
"""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.analyze.verdict import Cause
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import note_incident


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        if draft.role_of(pod) is not Role.ROLLOUT or pod.uid in draft.gone:
            continue
        verdict = draft.verdict(pod.uid)
        if verdict.pod_lost:
            draft = note_incident(draft, "rollout", pod.name, verdict, "replace the pod (rule 1)", recovered=True)
            draft = draft.delete(pod, force=verdict.node_lost)
        elif verdict.cause is Cause.ENGINE_EXITED:
            decision = "its agent restarts it in place (rule 1)"
            draft = note_incident(draft, "rollout", pod.name, verdict, decision, recovered=True)
    return draft
