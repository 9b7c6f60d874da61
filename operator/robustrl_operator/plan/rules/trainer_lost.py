"""Rule 3: a trainer's pod or node is lost (paper section 5.1.3, warm standby).

The lost pod's seat is given to the healthiest promotable rollout and the trainers start a new epoch at once, from
memory. What was lost comes back as a new rollout, without the trainers waiting for it (`populate`). With no
rollout to spare the seat stays vacant until a new trainer pod takes it (`seats`); rollouts generate meanwhile.

Invariant: the seat is vacated and the epoch raised in one status write, so the lost pod, should it live after all,
holds an epoch that agents and ledger refuse.
"""

from __future__ import annotations

from robustrl_api.names import EventReason
from robustrl_api.spec import Strategy
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import restart_trainers
from robustrl_operator.plan.incident import in_short
from robustrl_operator.plan.standby import reseat


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is Strategy.WHOLE_JOB:
        return draft
    lost = [m for m in draft.status.members if m.uid and draft.verdict(m.uid).pod_lost]
    if not lost:
        return draft
    members, promoted = reseat(draft, lost)
    if draft.status.epoch == 0:
        return draft.set(members=members)
    first = lost[0]
    takers = in_short(promoted)
    decision = f"promote {takers} (rule 3)" if promoted else "wait for a new trainer pod (rule 3)"
    draft = restart_trainers(draft, draft.verdict(first.uid), first.pod, members, decision, takers)
    for name, place in promoted.items():
        draft = draft.tell(EventReason.ROLLOUT_PROMOTED, f"{name} becomes a trainer in place of {place}")
    return draft
