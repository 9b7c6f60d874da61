"""Rule 6 and the end of every lost trainer: fenced pods and pods of dead nodes go without waiting for their node.

By now status has given their seats away and raised the epoch, so nothing they still do counts. One that lives and only
had its agent restarted hands out its checkpoints until the trainers are at work.
"""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.analyze.verdict import Cause
from robustrl_operator.plan.draft import Draft, Relabel


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        if pod.uid in draft.gone:
            continue
        role = draft.role_of(pod)
        lost = draft.verdict(pod.uid).pod_lost
        if role is not Role.FENCED and not (lost and role in (Role.TRAINER, Role.SERVICE)):
            continue
        if pod.role is not Role.FENCED and not pod.deleting:
            draft = draft.act(Relabel(pod.name, pod.uid, Role.FENCED, pod.epoch))
        if lost or not _may_be_asked(draft):
            draft = draft.delete(pod, force=draft.verdict(pod.uid).node_lost)
    return draft


def _may_be_asked(draft: Draft) -> bool:
    """Whether trainers that start may want a checkpoint of the one whose seat was given away."""
    recovery = draft.status.recovery
    return recovery is not None and recovery.cause == Cause.AGENT_RESTARTED and bool(recovery.replacement)
