"""Rule 4: faults of the training process that a restart of the trainers will not mend restart the whole job.

The paper's three (section 5.1.2): (a) a fault in the first step of the job, or in the first after a resume; (b) a
second fault in the same step; (c) a second restart that failed before the trainers were at work again. Each says that
the fault is reproducible rather than a machine's.

They count faults of the process only. A pod or node that is lost cannot be the script's doing, so losing another
machine in the same step, or in the first one, is answered like any other loss (rule 3); only a pod that dies again and
again without a step being made ends in the no-progress stop, like everything else.
"""

from __future__ import annotations

from robustrl_api.spec import Strategy
from robustrl_api.status import Scope, Stage
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.job_restart import restart_job

FAILED_RESTARTS = 2


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is Strategy.WHOLE_JOB or draft.status.epoch != draft.view.status.epoch:
        return draft
    for member in draft.status.members:
        fault = draft.verdict(member.uid) if member.uid else None
        if fault is not None and fault.failed and fault.scope is Scope.PROCESS:
            why = _reproducible(draft)
            return restart_job(draft, fault, member.pod, why) if why else draft
    return draft


def _reproducible(draft: Draft) -> str:
    """Which of the three it is, or nothing."""
    recovery = draft.status.recovery
    if recovery is not None and recovery.stage is Stage.TRAINING and recovery.process_faults > 0:
        return "rule 4b: a second fault in the same step"
    if recovery is not None and recovery.failed_restarts + 1 >= FAILED_RESTARTS:
        return "rule 4c: a second restart failed"
    if draft.view.committed_step() <= draft.status.base_step:
        return "rule 4a: a fault in the first step"
    return ""
