"""Labels follow status: what a pod is and in which epoch. They are effects, so any operator can write them."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.plan.draft import Draft, Relabel


def apply(draft: Draft) -> Draft:
    for pod in draft.view.pods:
        if pod.uid in draft.gone or pod.deleting:
            continue
        role = draft.role_of(pod)
        epoch = draft.status.epoch if role is Role.TRAINER and draft.is_member(pod.uid) else pod.epoch
        if role is not Role.FENCED and (pod.role, pod.epoch) != (role, epoch):
            draft = draft.act(Relabel(pod.name, pod.uid, role, epoch))
    return draft
