"""An image that is gone on purpose: rollouts made meanwhile are made with one that nobody can pull.

Which pods these are stands in status before they are made, beside those that were struck, and has no UID there. When it
is over they are taken away in the plan that makes the next ones: nothing is lost with them, so they are no fault.
"""

from __future__ import annotations

from dataclasses import replace

from robustrl_api.names import Role
from robustrl_api.status import InjectionStage, InjectionTarget
from robustrl_operator.faults.kind import Means
from robustrl_operator.plan.draft import CreatePod, Draft
from robustrl_operator.plan.lasting import is_over
from robustrl_operator.view import PodView, timestamp

MOST = 100
"""Pods of one injection, so that status has room for them; from then on they are made as usual."""


def apply(draft: Draft) -> Draft:
    """Take away those that cannot start, once it is over."""
    injection = draft.status.injection
    if injection is None or (injection.stage is InjectionStage.STRIKING and not is_over(injection, draft.view.now)):
        return draft
    for pod in draft.view.pods:
        if is_spoilt(draft, pod) and not pod.deleting:
            draft = draft.delete(pod, force=False)
    return draft


def is_spoilt(draft: Draft, pod: PodView) -> bool:
    """Whether a pod was made with an image that nobody can pull."""
    injection = draft.status.injection
    return injection is not None and any(not each.uid and each.pod == pod.name for each in injection.targets)


def spoil(draft: Draft) -> Draft:
    """Have the rollouts that this plan makes be such ones, while it lasts."""
    injection = draft.status.injection
    if injection is None or injection.stage is not InjectionStage.STRIKING or not _is_meant(injection.targets):
        return draft
    made = [each.name for each in draft.actions if isinstance(each, CreatePod) and each.role is Role.ROLLOUT]
    made = made[: max(0, MOST - len(injection.targets))]
    now = timestamp(draft.view.now)
    targets = tuple(InjectionTarget(pod=name, uid="", deed=Means.TAKE_IMAGE, struck_time=now) for name in made)
    actions = tuple(
        replace(each, pullable=False) if isinstance(each, CreatePod) and each.name in made else each
        for each in draft.actions
    )
    injection = injection.model_copy(update={"targets": (*injection.targets, *targets)})
    return replace(draft.set(injection=injection), actions=actions)


def _is_meant(targets: tuple[InjectionTarget, ...]) -> bool:
    return any(target.deed == Means.TAKE_IMAGE for target in targets)
