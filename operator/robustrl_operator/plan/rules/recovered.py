"""A trainers' recovery ends with the first step committed after it, not with processes that merely run."""

from __future__ import annotations

from robustrl_api.control import AgentReport, ChildState
from robustrl_api.names import EventReason
from robustrl_api.status import Incident, RecoveryStatus
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import moment, timestamp


def apply(draft: Draft) -> Draft:
    recovery = draft.status.recovery
    if recovery is None:
        return draft
    if (known := _made_before(draft)) > recovery.step:
        recovery = recovery.model_copy(update={"step": known})
        draft = draft.set(recovery=recovery)
    if not _stepped(draft, recovery):
        return draft
    now = draft.view.now
    took = (now - moment(recovery.detected_time)).total_seconds()
    incidents = tuple(
        i.model_copy(update={"recovered_time": timestamp(now)}) if _is_answered(i, recovery) else i
        for i in draft.status.incidents
    )
    draft = draft.tell(EventReason.RECOVERED, f"next optimizer step {took:.2f} s after the fault was found")
    return draft.set(recovery=None, restarts_without_progress=0, incidents=incidents)


def _made_before(draft: Draft) -> int:
    """The newest step that a member brings along from before this epoch: it may have been committed just before the
    fault, and be heard of after it."""
    reports = (draft.view.report(member.uid) for member in draft.status.members if member.uid)
    return max((r.step for r in reports if r and not _has_worked(draft, r)), default=0)


def _has_worked(draft: Draft, report: AgentReport) -> bool:
    """Whether a step that a report names may be this epoch's."""
    return report.child.epoch == draft.status.epoch and report.child.state is not ChildState.STARTING


def _is_answered(incident: Incident, recovery: RecoveryStatus) -> bool:
    """One of a recovery that was cut short, as by suspending the job, stays open."""
    begun = incident.detected_time >= recovery.detected_time
    return begun and not incident.recovered_time and incident.role == "trainer"


def _stepped(draft: Draft, recovery: RecoveryStatus) -> bool:
    """Whether a member of this epoch has committed a step past the one at which the fault was found."""
    for member in draft.status.members:
        report = draft.view.report(member.uid) if member.uid else None
        if report and _has_worked(draft, report) and report.step > recovery.step:
            return True
    return False
