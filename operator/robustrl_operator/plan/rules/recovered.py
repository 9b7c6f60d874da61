"""A trainers' recovery ends with the first step committed after it, not with processes that merely run."""

from __future__ import annotations

from robustrl_api.names import EventReason
from robustrl_api.status import RecoveryStatus
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import moment, timestamp


def apply(draft: Draft) -> Draft:
    recovery = draft.status.recovery
    if recovery is None or not _stepped(draft, recovery):
        return draft
    now = draft.view.now
    took = (now - moment(recovery.detected_time)).total_seconds()
    incidents = tuple(
        i.model_copy(update={"recovered_time": timestamp(now)}) if not i.recovered_time and i.role == "trainer" else i
        for i in draft.status.incidents
    )
    draft = draft.tell(EventReason.RECOVERED, f"next optimizer step {took:.2f} s after the fault was found")
    return draft.set(recovery=None, restarts_without_progress=0, incidents=incidents)


def _stepped(draft: Draft, recovery: RecoveryStatus) -> bool:
    """Whether a member of this epoch has committed a step past the one at which the fault was found."""
    for member in draft.status.members:
        report = draft.view.report(member.uid) if member.uid else None
        if report and report.child.epoch == draft.status.epoch and report.step > recovery.step:
            return True
    return False
