"""Which rollouts may become trainers, best first (paper section 5.1.3)."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_api.spec import Mode, StandbyMode
from robustrl_api.status import Member
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import PodView


def promotable(draft: Draft) -> list[PodView]:
    """Healthy rollouts beyond `rollout.minReplicas`, those with the newest weights first.

    None in Sync mode, where trainers and rollouts are the same machines, nor with standby Off.
    """
    if draft.spec.mode is Mode.SYNC or draft.spec.recovery.standby.mode is StandbyMode.OFF:
        return []
    healthy = [pod for pod in draft.healthy(Role.ROLLOUT) if pod.address]
    spare = len(healthy) - draft.spec.rollout.min_replicas
    # Oldest last among equals: the longest-lived engine is the one to keep serving.
    ranked = sorted(healthy, key=lambda pod: (_admitted(draft, pod), pod.created, pod.name), reverse=True)
    return ranked[: max(0, spare)]


def _admitted(draft: Draft, pod: PodView) -> bool:
    report = draft.view.report(pod.uid)
    return bool(report and report.admitted)


def seat(rank: int, pod: PodView) -> Member:
    return Member(rank=rank, pod=pod.name, uid=pod.uid, node=pod.node)
