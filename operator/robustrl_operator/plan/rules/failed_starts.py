"""Pods that fail before they are heard of, or may not be made at all, are made anew: the second time and from then on
after a pause that doubles.

So fails a pod that its node refuses, as where a GPU is not given back yet (OutOfnvidia.com/gpu), or one evicted at
once; a quota or an admission policy refuses some before that. Without a pause a new one would be made, and refused, as
often as the API server can be asked.
"""

from __future__ import annotations

from robustrl_api.names import EventReason, Role
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.incarnation import restart_delay
from robustrl_operator.plan.rules.populate import group_of
from robustrl_operator.view import PodView, timestamp

TEXT_CHARACTERS = 253
"""What status has room for."""


def apply(draft: Draft) -> Draft:
    unheard = {group_of(draft, pod): draft.verdict(pod.uid).evidence for pod in draft.view.pods if _failed(draft, pod)}
    for name, why in (unheard | draft.view.refused).items():
        draft = _count(draft, name, why)
    for name, why in draft.view.refused.items():
        draft = draft.tell(EventReason.POD_REFUSED, f"{name}: {why}", warning=True)
    return draft


def _failed(draft: Draft, pod: PodView) -> bool:
    """Once a pod: it is deleted in the same plan. A service has no agent to hear of; it ran if it had an address."""
    unheard = not pod.address if pod.origin is Role.SERVICE else draft.view.report(pod.uid) is None
    return pod.phase == "Failed" and not pod.deleting and unheard and pod.attempt == draft.status.attempt


def _count(draft: Draft, name: str, why: str) -> Draft:
    """Several that fail at once are one failure: what they have in common is their start."""
    before = draft.role_status(name)
    failures = before.failed_starts + 1
    pause = restart_delay(draft, failures)
    next_start = timestamp(draft.view.now + pause) if pause else ""
    role = before.model_copy(
        update={"failed_starts": failures, "failed_start": why[:TEXT_CHARACTERS], "next_start_time": next_start}
    )
    return draft.set(roles=(*(each for each in draft.status.roles if each.name != name), role))
