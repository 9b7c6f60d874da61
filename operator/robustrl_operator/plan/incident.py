"""The record of a fault: what failed, the evidence, what was decided and by which rule, what has to be done again."""

from __future__ import annotations

from robustrl_api.names import EventReason
from robustrl_api.status import Incident, Scope
from robustrl_operator.analyze.verdict import Verdict
from robustrl_operator.plan import suspicion
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import timestamp

MAX_INCIDENTS = 10
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
    )
    if any(_same_fault(before, incident) for before in draft.status.incidents):
        return draft
    draft = suspicion.note(draft, pod, fault)
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
