"""Whom a fault made on purpose strikes, and with what: pods that play the role now, or what surrounds the job."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_api.status import InjectionTarget
from robustrl_operator.faults.kind import AWAY, KINDS, Blow, Deed, FaultKind, whom
from robustrl_operator.faults.target import index_of
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.stand_in import AT_ONCE, stand_in, why_not

OPERATOR = "operator"
"""In the place of a pod and its UID, where it is the operator that is away."""
MAX_TARGETS = 1000
"""What status has room for."""


class Refused(Exception):
    """Why there will be no fault."""


def targets_of(draft: Draft, kind: FaultKind, target: str) -> tuple[InjectionTarget, ...]:
    """Each pod with what is done to it, in that order.

    Args:
        target: as it was asked for.

    Raises:
        Refused: nothing can be done here that comes to the same, or there is no such pod.
    """
    if KINDS[kind].deed in AWAY:
        return _operator(kind, target)
    for each in _deeds(kind):
        if stand_in(draft.view, each) is None:
            raise Refused(why_not(kind, each))
    try:
        blows = _blows(draft, kind, target)
    except LookupError as error:
        raise Refused(str(error)) from error
    if len(blows) > MAX_TARGETS:
        raise Refused(f"{kind} would strike {len(blows)} pods, and {MAX_TARGETS} at once is the most")
    uids = {pod.name: pod.uid for pod in draft.view.pods}
    deeds = [(blow.pod, stand_in(draft.view, blow.deed)) for blow in blows]
    return tuple(InjectionTarget(pod=pod, uid=uids[pod], deed=done) for pod, done in deeds if done is not None)


def _operator(kind: FaultKind, target: str) -> tuple[InjectionTarget, ...]:
    if target:
        raise Refused(f"{kind} strikes the operator, as far as this job has to do with it: name no pod")
    return (InjectionTarget(pod=OPERATOR, uid=OPERATOR, deed=KINDS[kind].deed),)


def _deeds(kind: FaultKind) -> tuple[Deed, ...]:
    return (AT_ONCE[kind],) if kind in AT_ONCE else (*KINDS[kind].first, KINDS[kind].deed)


def _blows(draft: Draft, kind: FaultKind, target: str) -> tuple[Blow, ...]:
    """What surrounds the job is struck as far as its trainers have to do with it.

    Raises:
        LookupError: there is no such pod now.
    """

    def playing(role: Role) -> list[str]:
        return _playing(draft, role)

    role = KINDS[kind].role
    if role is not None:
        struck = whom(kind, role, playing, index_of(target, role, playing(role)))
        return tuple(Blow(pod, deed) for deed in _deeds(kind) for pod in struck)
    if target or not playing(Role.TRAINER):
        raise LookupError(f"{kind} strikes all trainers: name none of them" if target else "there is no trainer now")
    return tuple(Blow(pod, KINDS[kind].deed) for pod in playing(Role.TRAINER))


def _playing(draft: Draft, role: Role) -> list[str]:
    """Trainers by rank, others oldest first."""
    if role is Role.TRAINER:
        return [member.pod for member in draft.status.members if member.uid in draft.view.by_uid]
    return [pod.name for pod in draft.live(role) if pod.uid not in draft.gone]
