"""Rule 3: a trainer's pod or node is lost (paper section 5.1.3, warm standby).

The lost pod's seat is given to the healthiest promotable rollout and the trainers start a new epoch at once, from
memory. What was lost comes back as a new rollout, without the trainers waiting for it (`populate`). With no
rollout to spare the seat stays vacant until a new trainer pod takes it (`seats`); rollouts generate meanwhile.

The same is done for a trainer whose agent was restarted, which has to load everything anew, if a rollout that has it
loaded stands by: the others wait for seconds less. Its pod hands out its checkpoints until the trainers are at work,
and goes then. Only the first time: where it happens again before a step was made, the script is as suspect as the
machine, and it is a fault of the process (rules 2 and 4).

Invariant: the seat is vacated and the epoch raised in one status write, so the lost pod, should it live after all,
holds an epoch that agents and ledger refuse.
"""

from __future__ import annotations

from dataclasses import replace

from robustrl_api.names import EventReason
from robustrl_api.spec import Strategy
from robustrl_api.status import Member, Scope
from robustrl_operator.analyze.verdict import Cause
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import restart_trainers
from robustrl_operator.plan.incident import in_short
from robustrl_operator.plan.standby import promotable, reseat, standbys


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is Strategy.WHOLE_JOB:
        return draft
    lost = [m for m in draft.status.members if m.uid and draft.verdict(m.uid).pod_lost]
    lost += _cold(draft, len(lost))
    if not lost:
        return draft
    members, promoted = reseat(draft, lost)
    if draft.status.epoch == 0:
        return draft.set(members=members)
    first = lost[0]
    takers = in_short(promoted)
    decision = f"promote {takers} (rule 3)" if promoted else "wait for a new trainer pod (rule 3)"
    fault = draft.verdict(first.uid)
    fault = fault if fault.pod_lost else replace(fault, scope=Scope.POD)
    draft = restart_trainers(draft, fault, first.pod, members, decision, takers)
    for name, place in promoted.items():
        draft = draft.tell(EventReason.ROLLOUT_PROMOTED, f"{name} becomes a trainer in place of {place}")
    return draft


def _cold(draft: Draft, lost: int) -> list[Member]:
    """Members that would keep the others waiting, where enough rollouts stand by for their seats and the lost ones."""
    if draft.status.recovery is not None or draft.view.committed_step() <= draft.status.base_step:
        return []
    members = (member for member in draft.status.members if member.uid)
    cold = [member for member in members if draft.verdict(member.uid).cause is Cause.AGENT_RESTARTED]
    ready = standbys(draft.view)
    takers = sum(1 for pod in promotable(draft) if pod.uid in ready)
    return cold if takers >= lost + len(cold) else []
