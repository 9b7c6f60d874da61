"""Which rollouts stand by for trainers, and which may become trainers now, best first (paper section 5.1.3)."""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_api.spec import Mode, RLJobSpec, StandbyMode
from robustrl_api.status import Member
from robustrl_operator.plan import suspicion
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import JobView, PodView


def reserve(spec: RLJobSpec) -> int:
    """How many rollouts keep a warm worker loaded: as many as the largest parallel size, so that a whole parallel
    group can be replaced at once, but no more than may be borrowed."""
    if spec.mode is Mode.SYNC or spec.recovery.standby.mode is StandbyMode.OFF:
        return 0
    lendable = max(0, spec.rollout.replicas - spec.rollout.min_replicas)
    wanted = spec.recovery.standby.reserve
    return min(lendable, _largest_parallel_size(spec) if wanted is None else wanted)


def _largest_parallel_size(spec: RLJobSpec) -> int:
    sizes = spec.trainer.parallelism
    world = spec.trainer.replicas * spec.trainer.processes_per_pod
    data = max(sizes.data, world // (sizes.tensor * sizes.pipeline * sizes.context))
    return max(data, sizes.tensor, sizes.pipeline, sizes.expert, sizes.context)


def standbys(view: JobView) -> frozenset[str]:
    """UIDs of the rollouts that stand by: the longest-lived, so that the choice does not wander as pods come."""
    rollouts = [pod for pod in view.pods if view.current_role(pod) is Role.ROLLOUT and not pod.deleting]
    oldest = sorted(rollouts, key=lambda pod: (pod.created, pod.name))
    return frozenset(pod.uid for pod in oldest[: reserve(view.spec)])


def promotable(draft: Draft) -> list[PodView]:
    """Healthy rollouts beyond `rollout.minReplicas`, best first: on a node that is not suspect, standing by, with
    current weights. The last weighs least: a trainer needs the machine and not the engine, and engines are without
    current weights for a moment after each step.

    None in Sync mode, where trainers and rollouts are the same machines, nor with standby Off.
    """
    if draft.spec.mode is Mode.SYNC or draft.spec.recovery.standby.mode is StandbyMode.OFF:
        return []
    healthy = [pod for pod in draft.healthy(Role.ROLLOUT) if pod.address]
    spare = len(healthy) - draft.spec.rollout.min_replicas
    ready, suspects = standbys(draft.view), suspicion.suspects(draft)
    ranked = sorted(
        healthy,
        key=lambda pod: (pod.node in suspects, pod.uid not in ready, not _admitted(draft, pod), pod.created, pod.name),
    )
    return ranked[: max(0, spare)]


def _admitted(draft: Draft, pod: PodView) -> bool:
    report = draft.view.report(pod.uid)
    return bool(report and report.admitted)


def seat(rank: int, pod: PodView) -> Member:
    return Member(rank=rank, pod=pod.name, uid=pod.uid, node=pod.node)


def reseat(draft: Draft, lost: list[Member]) -> tuple[tuple[Member, ...], dict[str, str]]:
    """The members with each lost seat given to a rollout, or vacated; and the rollouts that took one, with whose."""
    spares = promotable(draft)
    members: list[Member] = []
    promoted: dict[str, str] = {}
    for member in draft.status.members:
        if member not in lost:
            members.append(member)
        elif spares:
            pod = spares.pop(0)
            members.append(seat(member.rank, pod))
            promoted[pod.name] = member.pod
        else:
            members.append(Member(rank=member.rank))
    return tuple(members), promoted
