"""An engine or managers that hang are ended by their agent and restart in place; trainers that hang fall to rule 2.

Invariant: a conviction names one process of one pod and is in status before any agent hears of it, so it is carried
out once, whoever the operator is by then; it is dropped when that process is gone.
"""

from __future__ import annotations

from robustrl_api.names import EventReason, Role
from robustrl_api.spec import Strategy
from robustrl_api.status import Conviction
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incident import note_incident
from robustrl_operator.view import PodView

MAX_CONVICTIONS = 1000
"""What status has room for. If more hang at once, the others' turn comes when these have been ended."""
RULES = {Role.ROLLOUT: 1, Role.MANAGER: 5}


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is Strategy.WHOLE_JOB:
        return draft
    standing = tuple(each for each in draft.status.convictions if _stands(draft, each))
    if standing != draft.status.convictions:
        draft = draft.set(convictions=standing)
    for pod in draft.view.pods:
        if draft.role_of(pod) in RULES and pod.uid not in draft.gone:
            draft = _convict(draft, pod)
    return draft


def _stands(draft: Draft, conviction: Conviction) -> bool:
    """Until its process is known to be gone: an operator that has just begun has heard nothing of it yet."""
    unheard = conviction.uid in draft.view.by_uid and conviction.uid not in draft.view.reports
    return unheard or _life(draft, conviction.uid) == conviction.life


def _convict(draft: Draft, pod: PodView) -> Draft:
    verdict, life = draft.verdict(pod.uid), _life(draft, pod.uid)
    conviction = Conviction(uid=pod.uid, life=life)
    known = draft.status.convictions
    if not verdict.failed or verdict.pod_lost or not life or conviction in known or len(known) >= MAX_CONVICTIONS:
        return draft
    role = draft.role_of(pod)
    decision = f"its agent ends it and restarts it in place (rule {RULES[role]})"
    draft = note_incident(draft, role.value, pod.name, verdict, decision, recovered=True)
    draft = draft.tell(EventReason.PROCESS_ENDED, f"{pod.name}: {verdict.cause}", warning=True)
    return draft.set(convictions=(*draft.status.convictions, conviction))


def _life(draft: Draft, uid: str) -> str:
    report = draft.view.report(uid)
    return report.child.life if report else ""
