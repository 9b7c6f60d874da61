"""The record of a fault: what failed, the evidence, what was decided and by which rule, what has to be done again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from robustrl_api.names import EventReason
from robustrl_api.status import Incident, InjectionStage, Scope, struck_pods
from robustrl_operator.analyze.verdict import Verdict
from robustrl_operator.faults.kind import is_no_fault
from robustrl_operator.plan import suspicion
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import moment, timestamp

MAX_INCIDENTS = 10
PLAUSIBLE, PLAUSIBLE_NONE = timedelta(minutes=15), timedelta(minutes=1)
"""A fault made on purpose is found within this time, or it was none; what is no fault of the job's usually is none."""
NAMES_CHARACTERS = 200
"""Of a list of names: a decision holds 253 characters, and so does who replaces whom."""
LOST = {
    "trainer": "the step under way is done again, on the same batch",
    "rollout": "the turn under way of each of its trajectories is generated again, elsewhere",
    "manager": "turns under way whose answers had not been saved are asked for again",
}


def note_incident(
    draft: Draft,
    role: str,
    pod: str,
    fault: Verdict,
    decision: str,
    *,
    epoch: int | None = None,
    replacement: str = "",
    lost: str | None = None,
    recovered: bool = False,
) -> Draft:
    """Keep a record of a fault, once: the same evidence about a pod is the same fault, and a pod is lost once.

    Args:
        lost: what has to be done again; what a fault of this role usually costs unless given.
    """
    now = timestamp(draft.view.now)
    incident = Incident(
        role=role,
        pod=pod,
        cause=fault.cause,
        evidence=fault.evidence[:1024],
        decision=decision,
        scope=fault.scope,
        epoch=draft.status.epoch if epoch is None else epoch,
        step=draft.view.committed_step(),
        replacement=replacement,
        lost=LOST.get(role, "") if lost is None else lost,
        fault_time=timestamp(fault.since or draft.view.now),
        detected_time=now,
        recovered_time=now if recovered else "",
        injection=_made_by(draft, role, pod),
    )
    if any(_same_fault(before, incident) for before in draft.status.incidents):
        return draft
    draft = suspicion.note(draft, pod, fault)
    purpose = f" (made on purpose by injection {incident.injection})" if incident.injection else ""
    words = f"{fault.cause}: {fault.evidence}{purpose} -> {decision}"
    draft = draft.tell(EventReason.FAULT_DETECTED, words, warning=True)
    return draft.set(incidents=(*draft.status.incidents, incident)[-MAX_INCIDENTS:])


def in_short(names: Iterable[str]) -> str:
    """Names divided by commas, as many as there is room for, and how many more there are."""
    left, text = list(names), ""
    while left and len(text) + len(left[0]) + 2 <= NAMES_CHARACTERS:
        text += (", " if text else "") + left.pop(0)
    return f"{text} and {len(left)} more" if left else text


def _made_by(draft: Draft, role: str, pod: str) -> str:
    """The injection that made the fault: of the struck role or pods, the first faults since, as many as were struck."""
    injection = draft.status.injection
    if injection is None or injection.stage not in (InjectionStage.STRIKING, InjectionStage.STRUCK):
        return ""
    since = moment(injection.struck_time or injection.accepted_time)
    if draft.view.now - since > (PLAUSIBLE_NONE if is_no_fault(injection) else PLAUSIBLE):
        return ""
    made = sum(1 for before in draft.status.incidents if before.injection == injection.id)
    concerns = role == injection.role or any(target.pod == pod for target in injection.targets)
    return injection.id if concerns and made < len(struck_pods(injection)) else ""


def _same_fault(before: Incident, now: Incident) -> bool:
    """An evicted pod is deleted afterwards; that it then says "deleted" is no second fault. The same last words in
    another epoch of the trainers are."""
    if before.pod != now.pod:
        return False
    lost_already = {before.scope, now.scope} <= {Scope.POD, Scope.NODE}
    same_words = (before.cause, before.evidence) == (now.cause, now.evidence)
    return lost_already or (same_words and (now.role != "trainer" or before.epoch == now.epoch))
