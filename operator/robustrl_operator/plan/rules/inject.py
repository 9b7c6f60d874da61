"""Faults made on purpose (`robustrl inject`): allowed or refused, and then carried out once.

Invariant: what is struck, and by which request, is in status before anybody strikes. A new operator finds it there
and goes on; agents and the API server do a thing that was done before not again. The same request is never taken up
twice, and there is one at a time.
"""

from __future__ import annotations

from datetime import timedelta

import xxhash
from pydantic import ValidationError

from robustrl_api.control import Harm, Strike
from robustrl_api.injection import Request
from robustrl_api.names import EventReason, Role
from robustrl_api.spec import InjectionMode
from robustrl_api.status import InjectionStage, InjectionStatus, InjectionTarget, struck_pods
from robustrl_operator.faults.kind import AWAY, KINDS, FaultKind, Means
from robustrl_operator.plan import hearsay
from robustrl_operator.plan.aiming import Refused, targets_of
from robustrl_operator.plan.draft import Action, DeletePod, Draft, HarmMachine, StandAside
from robustrl_operator.plan.lasting import is_over, struck_since
from robustrl_operator.plan.rules import image_gone
from robustrl_operator.view import moment, timestamp

PATIENCE = timedelta(seconds=30)
"""An agent that has not struck by then will not: it is gone, or another operator's."""

SHOWN_BY_THE_POD = frozenset({Means.DELETE, Means.DRAIN})
"""Done when the pod is on its way out, and until then done again. What is done to machines is done once."""

FROM_OUTSIDE: frozenset[str] = frozenset(Means) - {Means.TAKE_IMAGE, *hearsay.WORDS, *AWAY}
"""Done to a pod by an action. Not among them is a deed that only a later operator knows, which was here before this
one."""


def apply(draft: Draft) -> Draft:
    draft = image_gone.spoil(_advance(draft))
    request = _request(draft)
    if request is None:
        return draft
    try:
        return _accept(draft, request)
    except Refused as why:
        refused = _status(draft, request, InjectionStage.REFUSED).model_copy(update={"message": str(why)[:1024]})
        return draft.set(injection=refused).tell(EventReason.INJECTION_REFUSED, _words(refused), warning=True)


def strike_for(injection: InjectionStatus | None, uid: str) -> Strike | None:
    """What the agent of a pod shall do to it."""
    if injection is None or injection.stage is not InjectionStage.STRIKING:
        return None
    mine = next((target for target in injection.targets if target.uid == uid and not target.struck_time), None)
    return Strike(id=injection.id, harm=Harm(mine.deed)) if mine and mine.deed in set(Harm) else None


def _request(draft: Draft) -> Request | None:
    """What is asked for and has not been answered yet, unless another one is under way."""
    text, last = draft.view.inject, draft.status.injection
    if not text or (last is not None and last.stage is InjectionStage.STRIKING):
        return None
    try:
        request = Request.model_validate_json(text)
    except ValidationError:
        # Named by what it says, so that it is refused once.
        request = Request(id=f"unreadable-{xxhash.xxh3_64_hexdigest(text.encode())}", kind="")
    return None if last is not None and last.id == request.id else request


def _status(draft: Draft, request: Request, stage: InjectionStage) -> InjectionStatus:
    return InjectionStatus(
        id=request.id, kind=request.kind, target=request.target, stage=stage, accepted_time=timestamp(draft.view.now)
    )


def _accept(draft: Draft, request: Request) -> Draft:
    """Write down who is to be struck; machines and pods are struck by this very plan, once that is stored.

    Raises:
        Refused: it may not, or cannot, be done.
    """
    _check_allowed(draft, request)
    kind = FaultKind(request.kind)
    targets = targets_of(draft, kind, request.target)
    unseen = hearsay.unseen(draft.view, targets)
    if unseen and hearsay.may_still_be_heard(draft.view):
        return draft
    if unseen:
        raise Refused(hearsay.why_unseen(unseen[0]))
    taken = _status(draft, request, InjectionStage.STRIKING)
    injection = taken.model_copy(update={"targets": targets, "role": (KINDS[kind].role or Role.TRAINER).value})
    draft = draft.set(injection=injection).tell(EventReason.FAULT_INJECTED, _words(injection), warning=True)
    return _strike_from_outside(draft)


def _check_allowed(draft: Draft, request: Request) -> None:
    if not request.kind:
        raise Refused('the annotation is not a request such as {"id": "1", "kind": "worker"}')
    if draft.spec.fault_injection.mode is not InjectionMode.ALLOWED:
        raise Refused("the job does not allow it: set spec.faultInjection.mode to Allowed")
    if request.kind not in set(FaultKind):
        raise Refused(f"there is no kind {request.kind!r}; kinds: {', '.join(FaultKind)}")
    if draft.ended or draft.spec.suspend:
        raise Refused("the job has ended" if draft.ended else "the job is suspended")


def _advance(draft: Draft) -> Draft:
    """Note who has been struck. What was interrupted is done again, which is harmless."""
    injection = draft.status.injection
    if injection is None or injection.stage is not InjectionStage.STRIKING:
        return draft
    failed = [error for target in injection.targets if (error := _error(draft, injection, target))]
    targets = tuple(_seen(draft, injection, target) for target in injection.targets)
    injection = injection.model_copy(update={"targets": targets})
    if failed:
        return _fail(draft, injection, failed[0])
    if since := struck_since(injection):
        stage = InjectionStage.STRUCK if is_over(injection, draft.view.now) else InjectionStage.STRIKING
        return draft.set(injection=injection.model_copy(update={"stage": stage, "struck_time": since}))
    if draft.view.now - moment(injection.accepted_time) > PATIENCE:
        late = ", ".join(target.pod for target in targets if not target.struck_time)
        return _fail(draft, injection, f"not done within {PATIENCE.total_seconds():.0f} s: {late}")
    return _strike_from_outside(draft.set(injection=injection))


def _fail(draft: Draft, injection: InjectionStatus, why: str) -> Draft:
    failed = injection.model_copy(update={"stage": InjectionStage.FAILED, "message": why[:1024]})
    return draft.set(injection=failed).tell(EventReason.INJECTION_REFUSED, _words(failed), warning=True)


def _error(draft: Draft, injection: InjectionStatus, target: InjectionTarget) -> str:
    """Why its agent, or whoever strikes from outside, could not."""
    pod, report = draft.view.by_uid.get(target.uid), draft.view.report(target.uid)
    answers = (pod.struck if pod else None, report.struck if report else None)
    why = next((said.error for said in answers if said and said.id == injection.id and said.error), "")
    return f"{target.pod}: {why}" if why else ""


def _seen(draft: Draft, injection: InjectionStatus, target: InjectionTarget) -> InjectionTarget:
    if target.struck_time or not _is_struck(draft, injection, target):
        return target
    return target.model_copy(update={"struck_time": timestamp(draft.view.now)})


def _is_struck(draft: Draft, injection: InjectionStatus, target: InjectionTarget) -> bool:
    pod, report = draft.view.by_uid.get(target.uid), draft.view.report(target.uid)
    if target.deed in AWAY:
        # Whoever plans now began to listen after it was asked for: another operator, or one that was away meanwhile.
        return draft.view.watching_since > moment(injection.accepted_time)
    if pod is None:
        return True
    if target.deed in hearsay.WORDS:
        return hearsay.is_said(draft.view, target)
    if target.deed in set(Means):
        return target.deed not in SHOWN_BY_THE_POD or pod.deleting
    return report is not None and report.struck is not None and report.struck.id == injection.id


def _strike_from_outside(draft: Draft) -> Draft:
    """Pods are deleted as by anybody else: the draft does not count them out, so that they are found missing."""
    injection = draft.status.injection
    assert injection is not None
    for target in injection.targets:
        action = None if target.struck_time else _from_outside(draft, injection, target)
        draft = draft if action is None else draft.act(action)
    return draft


def _from_outside(draft: Draft, injection: InjectionStatus, target: InjectionTarget) -> Action | None:
    if target.deed in AWAY:
        return StandAside(AWAY[target.deed])
    if target.deed not in FROM_OUTSIDE or target.uid not in draft.view.by_uid:
        return None
    if target.deed == Means.DELETE:
        return DeletePod(target.pod, target.uid, force=False)
    return HarmMachine(target.pod, target.uid, Means(target.deed), injection.id)


def _words(injection: InjectionStatus) -> str:
    struck = ", ".join(struck_pods(injection)) or injection.target
    text = f"{injection.kind or 'fault'} ({injection.id})" + (f" of {struck}" if struck else "")
    return f"{text}: {injection.message}" if injection.message else text
