"""Restarting the whole job: every pod goes, and the job starts again from ledger and storage."""

from __future__ import annotations

from dataclasses import replace

from robustrl_api.names import EventReason
from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Verdict
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import restart_trainers
from robustrl_operator.plan.incident import note_incident
from robustrl_operator.plan.rules.conditions import fail


def restart_job(draft: Draft, fault: Verdict, pod: str, why: str) -> Draft:
    """Open a new attempt, for which every pod goes (`outdated`); past the budget the job fails instead.

    Args:
        pod: the pod that failed.
        why: the rule that made it, for people.
    """
    whole = replace(fault, scope=Scope.JOB)
    if draft.status.attempt >= draft.spec.recovery.budgets.job_restarts:
        return _give_up(draft, whole, pod)
    draft = restart_trainers(draft, whole, pod, (), f"restart the whole job ({why})")
    if draft.ended:
        return draft
    draft = draft.set(attempt=draft.status.attempt + 1, base_step=draft.view.committed_step(), convictions=())
    return draft.tell(EventReason.JOB_RESTARTED, f"attempt {draft.status.attempt} after {fault.cause}", warning=True)


def _give_up(draft: Draft, fault: Verdict, pod: str) -> Draft:
    draft = note_incident(draft, "trainer", pod, fault, "give up: the restarts of the whole job are spent")
    spent = f"the job was restarted {draft.status.attempt} times, as often as recovery.budgets.jobRestarts allows"
    return fail(draft, "JobRestartsSpent", f"{spent}. Last fault: {fault.cause}: {fault.evidence}")
