"""strategy WholeJob: any fault in any role takes every pod away and starts the job again from storage.

This is what JobSet, KubeRay, Trainer and most RL frameworks do. It is here to be measured against.
"""

from __future__ import annotations

from robustrl_api.names import EventReason, Role
from robustrl_api.spec import Strategy
from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Cause, Verdict
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import note_incident, restart_trainers
from robustrl_operator.plan.rules.conditions import fail

EXITS = frozenset({Cause.ENGINE_EXITED, Cause.MANAGER_EXITED})


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is not Strategy.WHOLE_JOB:
        return draft
    fault = _first_fault(draft)
    if fault is None:
        return draft
    uid, verdict = fault
    pod = draft.view.by_uid.get(uid)
    name = pod.name if pod else _member_name(draft, uid)
    whole = Verdict(verdict.health, verdict.cause, verdict.evidence, Scope.JOB)
    if draft.status.attempt >= draft.spec.recovery.budgets.job_restarts:
        return _give_up(draft, whole, name)
    draft = restart_trainers(draft, whole, name, (), "restart the whole job (strategy WholeJob)")
    if draft.ended:
        return draft
    for each in draft.view.pods:
        draft = draft.delete(each, force=draft.verdict(each.uid).node_lost)
    return draft.set(attempt=draft.status.attempt + 1).tell(
        EventReason.JOB_RESTARTED, f"attempt {draft.status.attempt + 1} after {verdict.cause}", warning=True
    )


def _give_up(draft: Draft, fault: Verdict, pod: str) -> Draft:
    draft = note_incident(draft, "trainer", pod, fault, "give up: the restarts of the whole job are spent")
    spent = f"the job was restarted {draft.status.attempt} times, as often as recovery.budgets.jobRestarts allows"
    return fail(draft, "JobRestartsSpent", f"{spent}. Last fault: {fault.cause}: {fault.evidence}")


def _first_fault(draft: Draft) -> tuple[str, Verdict] | None:
    for uid, verdict in draft.verdicts.items():
        pod = draft.view.by_uid.get(uid)
        if pod is not None and (pod.attempt != draft.status.attempt or pod.role is Role.FENCED):
            continue
        if verdict.failed or verdict.cause in EXITS:
            return uid, verdict
    return None


def _member_name(draft: Draft, uid: str) -> str:
    return next((m.pod for m in draft.status.members if m.uid == uid), uid)
