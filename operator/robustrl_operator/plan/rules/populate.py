"""Creates the pods that are missing and takes away the ones too many.

Counted by what pods do now, not by what they were created for: after a promotion it is a rollout that is missing.
"""

from __future__ import annotations

from robustrl_api.names import EventReason, Role
from robustrl_operator.plan.draft import CreatePod, Draft


def apply(draft: Draft) -> Draft:
    draft = _create(draft, Role.MANAGER, draft.spec.manager.replicas - len(draft.live(Role.MANAGER)))
    draft = _create(draft, Role.TRAINER, _trainers_missing(draft))
    surplus = len(draft.live(Role.ROLLOUT)) - draft.spec.rollout.replicas
    draft = _create(draft, Role.ROLLOUT, -surplus)
    for pod in draft.live(Role.ROLLOUT)[::-1][: max(0, surplus)]:
        draft = draft.delete(pod, force=False)
    return _services(draft)


def _trainers_missing(draft: Draft) -> int:
    """Vacant seats that no trainer pod is on its way to take."""
    seats = draft.spec.trainer.replicas
    taken = sum(1 for member in draft.status.members if member.uid)
    coming = sum(1 for pod in draft.live(Role.TRAINER) if not draft.is_member(pod.uid))
    return seats - taken - coming


def _services(draft: Draft) -> Draft:
    for service in draft.spec.services:
        prefix = f"{draft.view.name}-{service.name}-"
        live = [pod for pod in draft.live(Role.SERVICE) if pod.name.startswith(prefix)]
        draft = _create(draft, Role.SERVICE, service.replicas - len(live), service.name)
    return draft


def _create(draft: Draft, role: Role, count: int, service: str = "") -> Draft:
    for _ in range(count):
        serial = draft.status.serial
        name = f"{draft.view.name}-{service or role}-{serial}"
        draft = draft.set(serial=serial + 1).act(CreatePod(name, role, service))
        draft = draft.tell(EventReason.POD_CREATED, name)
    return draft
