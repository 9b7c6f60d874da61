"""Rule 7: what is announced is answered before it happens: SIGTERM, deletion with grace, drain, eviction, a taint.

Trainers end together at their next commit and go on from it in the next epoch, with a rollout in the place of the one
that leaves: no step is done twice. Other pods see out what they have been asked and are replaced.

Invariant: the epoch is raised only when every trainer has ended after the same commit; until then the old one rules,
and whoever fails meanwhile is a fault like any other.
"""

from __future__ import annotations

from robustrl_api.names import EventReason, Role
from robustrl_api.spec import Strategy
from robustrl_api.status import Member
from robustrl_operator.analyze.verdict import Cause, Health, Verdict
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import restart_trainers
from robustrl_operator.plan.incident import in_short, note_incident
from robustrl_operator.plan.standby import reseat

NOTHING = "nothing: the trainers ended after a commit"


def apply(draft: Draft) -> Draft:
    if draft.spec.recovery.strategy is Strategy.WHOLE_JOB:
        return draft
    return _trainers(_others(draft))


def _others(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        verdict, role = draft.verdict(pod.uid), draft.role_of(pod)
        if verdict.health is not Health.LEAVING or draft.is_member(pod.uid) or pod.uid in draft.gone:
            continue
        if role is Role.FENCED:
            continue  # it was given up before, and stays for as long as `fence` lets it
        decision = "replace the pod once it has drained (rule 7)"
        draft = note_incident(draft, role.value, pod.name, verdict, decision, lost="", recovered=True)
        draft = draft.delete(pod, force=False)
    return draft


def _trainers(draft: Draft) -> Draft:
    if draft.status.epoch != draft.view.status.epoch:
        return draft
    leaving = [m for m in draft.status.members if m.uid and draft.verdict(m.uid).health is Health.LEAVING]
    ended = [member for member in draft.status.members if member.uid and _handed_over(draft, member)]
    if ended and len(ended) == len(draft.status.members):
        return _go_on(draft, leaving)
    if leaving:
        return draft.wait("the trainers to hand over")
    return draft


def _handed_over(draft: Draft, member: Member) -> bool:
    report = draft.view.report(member.uid)
    exit = report.child.last_exit if report and report.child.epoch == draft.status.epoch else None
    return exit is not None and exit.handed_over


def _go_on(draft: Draft, leaving: list[Member]) -> Draft:
    """The next epoch; with the same members, should whoever wanted to leave have changed its mind."""
    members, promoted = reseat(draft, leaving)
    first = leaving[0] if leaving else draft.status.members[0]
    fault = draft.verdict(first.uid) if leaving else Verdict(Health.LEAVING, Cause.POD_LEAVING, "nobody leaves")
    takers = in_short(promoted)
    decision = f"hand over to {takers or 'a new pod'} (rule 7)"
    draft = restart_trainers(draft, fault, first.pod, members, decision, takers, lost=NOTHING)
    for name, place in promoted.items():
        draft = draft.tell(EventReason.ROLLOUT_PROMOTED, f"{name} takes over from {place}")
    return draft
