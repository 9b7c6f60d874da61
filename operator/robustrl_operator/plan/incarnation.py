"""Opening a new incarnation of the trainers: the next epoch, and the accounts of restarts.

The epoch rises by one for each fault answered, never for anything else. Restarts that make no step are counted, and
past the budget the job fails with a diagnosis rather than restart for ever. After faults of the trainers' own
processes the first restart is immediate and each further one waits twice as long, until they have been stable for a
while (the semantics of RoleBasedGroup); a lost machine is no reason to wait.
"""

from __future__ import annotations

from datetime import timedelta

from robustrl_api.status import Member, RecoveryStatus, Scope, Stage
from robustrl_operator.analyze.verdict import Verdict
from robustrl_operator.plan import suspicion
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incident import note_incident
from robustrl_operator.plan.rules.conditions import fail
from robustrl_operator.view import moment, timestamp


def restart_trainers(
    draft: Draft,
    fault: Verdict,
    pod: str,
    members: tuple[Member, ...],
    decision: str,
    replacement: str = "",
    *,
    lost: str | None = None,
) -> Draft:
    """Raise the epoch over `members` and note the fault that made it necessary."""
    draft = suspicion.note_dead(draft)
    draft = note_incident(
        draft, "trainer", pod, fault, decision, epoch=draft.status.epoch + 1, replacement=replacement, lost=lost
    )
    futile = draft.status.restarts_without_progress + 1
    if futile > draft.spec.recovery.budgets.restarts_without_progress:
        return fail(draft, "NoProgress", _diagnosis(draft, fault))
    unstable = _unstable_restarts(draft, fault)
    return draft.set(
        epoch=draft.status.epoch + 1,
        members=members,
        restarts_without_progress=futile,
        unstable_restarts=unstable,
        restarted_time=timestamp(draft.view.now),
        recovery=_recovery(draft, fault, pod, members, restart_delay(draft, unstable), replacement),
    )


def _unstable_restarts(draft: Draft, fault: Verdict) -> int:
    """Restarts in a row, this one included, after faults of the trainers' processes. Zero: no reason to wait."""
    if not _is_of_process(fault):
        return 0
    status, stable = draft.status, timedelta(seconds=draft.spec.recovery.backoff.stable_seconds)
    soon = bool(status.restarted_time) and draft.view.now - moment(status.restarted_time) < stable
    futile = status.restarts_without_progress > 0
    return status.unstable_restarts + 1 if soon or futile else 1


def _recovery(
    draft: Draft, fault: Verdict, pod: str, members: tuple[Member, ...], delay: timedelta, replacement: str
) -> RecoveryStatus:
    previous = draft.status.recovery
    return RecoveryStatus(
        pod=pod,
        cause=fault.cause,
        evidence=fault.evidence[:1024],
        scope=fault.scope,
        stage=_stage(members, delay),
        step=draft.view.committed_step(),
        failed_restarts=_failed_restarts(previous, fault),
        process_faults=(previous.process_faults if previous else 0) + _is_of_process(fault),
        # A fault inside a recovery prolongs it: the outage began with the first one.
        detected_time=previous.detected_time if previous else timestamp(draft.view.now),
        not_before_time=timestamp(draft.view.now + delay) if delay else "",
        replacement=replacement,
    )


def _failed_restarts(previous: RecoveryStatus | None, fault: Verdict) -> int:
    """A process that fails before the trainers are at work again makes this attempt one that failed."""
    if previous is None:
        return 0
    return previous.failed_restarts + (fault.scope is Scope.PROCESS)


def _is_of_process(fault: Verdict) -> bool:
    """A fault that is answered by a restart of the whole job is one as well."""
    return fault.scope not in (Scope.POD, Scope.NODE)


def _stage(members: tuple[Member, ...], delay: timedelta) -> Stage:
    if delay:
        return Stage.WAITING_FOR_BACKOFF
    vacant = not members or any(not member.uid for member in members)
    return Stage.WAITING_FOR_POD if vacant else Stage.RESTARTING


def restart_delay(draft: Draft, unstable: int) -> timedelta:
    """Zero for the first restart in a row, then base, 2 base, 4 base ... up to the maximum."""
    backoff = draft.spec.recovery.backoff
    if unstable < 2:
        return timedelta(0)
    seconds = min(backoff.base_delay_seconds * 2 ** (unstable - 2), backoff.max_delay_seconds)
    return timedelta(seconds=seconds)


def _diagnosis(draft: Draft, fault: Verdict) -> str:
    count = draft.status.restarts_without_progress
    step = draft.view.committed_step()
    return (
        f"{count} restarts in a row made no training step after step {step}, so another would not either. "
        f"Last fault: {fault.cause}: {fault.evidence}"
    )
