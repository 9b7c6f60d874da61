"""Opening a new incarnation of the trainers: the next epoch, and the accounts of restarts.

The epoch rises by one for each fault answered, never for anything else. Restarts that make no step are counted;
the first is immediate, each further one waits twice as long, and past the budget the job fails with a diagnosis
rather than restart for ever.
"""

from __future__ import annotations

from datetime import timedelta

from robustrl_api.names import EventReason
from robustrl_api.status import Incident, Member, RecoveryStatus, Scope, Stage
from robustrl_operator.analyze.verdict import Verdict
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules.conditions import fail
from robustrl_operator.view import timestamp

MAX_INCIDENTS = 10


def restart_trainers(
    draft: Draft, fault: Verdict, pod: str, members: tuple[Member, ...], decision: str, replacement: str = ""
) -> Draft:
    """Raise the epoch over `members` and note the fault that made it necessary."""
    draft = note_incident(draft, "trainer", pod, fault, decision, epoch=draft.status.epoch + 1)
    futile = draft.status.restarts_without_progress + 1
    if futile > draft.spec.recovery.budgets.restarts_without_progress:
        return fail(draft, "NoProgress", _diagnosis(draft, fault))
    return draft.set(
        epoch=draft.status.epoch + 1,
        members=members,
        restarts_without_progress=futile,
        recovery=_recovery(draft, fault, pod, members, futile, replacement),
    )


def _recovery(
    draft: Draft, fault: Verdict, pod: str, members: tuple[Member, ...], futile: int, replacement: str
) -> RecoveryStatus:
    delay = restart_delay(draft, futile)
    previous = draft.status.recovery
    return RecoveryStatus(
        pod=pod,
        cause=fault.cause,
        evidence=fault.evidence[:1024],
        scope=fault.scope,
        stage=_stage(members, delay),
        step=draft.view.committed_step(),
        # A fault inside a recovery prolongs it: the outage began with the first one.
        detected_time=previous.detected_time if previous else timestamp(draft.view.now),
        not_before_time=timestamp(draft.view.now + delay) if delay else "",
        replacement=replacement,
    )


def _stage(members: tuple[Member, ...], delay: timedelta) -> Stage:
    if delay:
        return Stage.WAITING_FOR_BACKOFF
    vacant = not members or any(not member.uid for member in members)
    return Stage.WAITING_FOR_POD if vacant else Stage.RESTARTING


def restart_delay(draft: Draft, futile: int) -> timedelta:
    """Zero for the first restart without progress, then base, 2 base, 4 base ... up to the maximum."""
    backoff = draft.spec.recovery.backoff
    if futile < 2:
        return timedelta(0)
    seconds = min(backoff.base_delay_seconds * 2 ** (futile - 2), backoff.max_delay_seconds)
    return timedelta(seconds=seconds)


def note_incident(
    draft: Draft,
    role: str,
    pod: str,
    fault: Verdict,
    decision: str,
    *,
    epoch: int | None = None,
    recovered: bool = False,
) -> Draft:
    """Keep a record of a fault, once: the same evidence about a pod is the same fault, and a pod is lost once."""
    incident = Incident(
        role=role,
        pod=pod,
        cause=fault.cause,
        evidence=fault.evidence[:1024],
        decision=decision,
        scope=fault.scope if fault.scope is not Scope.JOB else Scope.JOB,
        epoch=draft.status.epoch if epoch is None else epoch,
        step=draft.view.committed_step(),
        detected_time=timestamp(draft.view.now),
        recovered_time=timestamp(draft.view.now) if recovered else "",
    )
    if any(_same_fault(before, incident) for before in draft.status.incidents):
        return draft
    draft = draft.tell(EventReason.FAULT_DETECTED, f"{fault.cause}: {fault.evidence} -> {decision}", warning=True)
    return draft.set(incidents=(*draft.status.incidents, incident)[-MAX_INCIDENTS:])


def _same_fault(before: Incident, now: Incident) -> bool:
    """An evicted pod is deleted afterwards; that it then says "deleted" is no second fault. The same last words in
    another epoch of the trainers are."""
    if before.pod != now.pod:
        return False
    lost_already = {before.scope, now.scope} <= {Scope.POD, Scope.NODE}
    same_words = (before.cause, before.evidence) == (now.cause, now.evidence)
    return lost_already or (same_words and (now.role != "trainer" or before.epoch == now.epoch))


def _diagnosis(draft: Draft, fault: Verdict) -> str:
    count = draft.status.restarts_without_progress
    step = draft.view.committed_step()
    return (
        f"{count} restarts in a row made no training step after step {step}, so another would not either. "
        f"Last fault: {fault.cause}: {fault.evidence}"
    )
