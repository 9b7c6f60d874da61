"""What rules 1 and 5 do alike for a pod outside the trainers: replace it when it is lost, record a restart in place."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.analyze.verdict import Cause
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incident import note_incident
from robustrl_operator.view import PodView


def replace_or_record(
    draft: Draft, pod: PodView, role: Role, exited: Cause, rule: int, *, let_go: bool = False
) -> Draft:
    """Delete a lost pod, so that `populate` makes another; put an exit that its agent answers itself on record.

    Training goes on either way, so the incident is closed as it is opened.

    Args:
        let_go: whether nothing is lost with the pod.
    """
    verdict = draft.verdict(pod.uid)
    if verdict.pod_lost:
        if not let_go:
            decision = f"replace the pod (rule {rule})"
            draft = note_incident(draft, role.value, pod.name, verdict, decision, recovered=True)
        return draft.delete(pod, force=verdict.node_lost)
    if verdict.cause is exited:
        decision = f"its agent restarts it in place (rule {rule})"
        return note_incident(draft, role.value, pod.name, verdict, decision, recovered=True)
    return draft
