"""strategy WholeJob: any fault in any role takes every pod away and starts the job again from storage.

This is what JobSet, KubeRay, Trainer and most RL frameworks do. It is here to be measured against.
"""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_api.spec import Strategy
from robustrl_operator.analyze.verdict import Cause, Verdict
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.job_restart import restart_job

EXITS = frozenset({Cause.ENGINE_EXITED, Cause.MANAGER_EXITED})


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is not Strategy.WHOLE_JOB or draft.status.epoch != draft.view.status.epoch:
        return draft
    fault = _first_fault(draft)
    if fault is None:
        return draft
    uid, verdict = fault
    pod = draft.view.by_uid.get(uid)
    name = pod.name if pod else _member_name(draft, uid)
    return restart_job(draft, verdict, name, "strategy WholeJob")


def _first_fault(draft: Draft) -> tuple[str, Verdict] | None:
    for uid, verdict in draft.verdicts.items():
        pod = draft.view.by_uid.get(uid)
        if pod is not None and (pod.attempt != draft.status.attempt or pod.role is Role.FENCED or draft.is_let_go(pod)):
            continue
        if verdict.failed or verdict.cause in EXITS:
            return uid, verdict
    return None


def _member_name(draft: Draft, uid: str) -> str:
    return next((m.pod for m in draft.status.members if m.uid == uid), uid)
