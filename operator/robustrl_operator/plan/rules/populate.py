"""Creates the pods that are missing and takes away the ones too many.

Counted by what pods do now, not by what they were created for: after a promotion it is a rollout that is missing.
"""

from __future__ import annotations

from datetime import timedelta

from robustrl_api.names import EventReason, Role
from robustrl_operator.analyze.verdict import Health
from robustrl_operator.plan import suspicion
from robustrl_operator.plan.draft import CreatePod, Draft
from robustrl_operator.view import PodView, moment


def apply(draft: Draft) -> Draft:
    draft = _create(draft, Role.MANAGER, draft.spec.manager.replicas - len(draft.live(Role.MANAGER)))
    draft = _trainers(draft)
    rollouts = draft.live(Role.ROLLOUT)
    draft = _create(draft, Role.ROLLOUT, draft.spec.rollout.replicas - len(rollouts))
    # Of too many those stay that work, and of these the oldest.
    best = sorted(rollouts, key=lambda pod: draft.verdict(pod.uid).health is not Health.HEALTHY)
    draft = _release(draft, best[draft.spec.rollout.replicas :])
    return _services(draft)


def _trainers(draft: Draft) -> Draft:
    """One pod on its way for each vacant seat; one whose seat a rollout took meanwhile is not needed any more."""
    vacant = draft.spec.trainer.replicas - sum(1 for member in draft.status.members if member.uid)
    coming = [pod for pod in draft.live(Role.TRAINER) if not draft.is_member(pod.uid)]
    draft = _create(draft, Role.TRAINER, vacant - len(coming))
    return _release(draft, coming[vacant:])


def _services(draft: Draft) -> Draft:
    wanted = {service.name: service.replicas for service in draft.spec.services}
    live: dict[str, list[PodView]] = {name: [] for name in wanted}
    for pod in draft.live(Role.SERVICE):
        live.setdefault(service_of(draft, pod), []).append(pod)
    for name, pods in live.items():
        replicas = wanted.get(name, 0)
        draft = _create(draft, Role.SERVICE, replicas - len(pods), name)
        draft = _release(draft, pods[replicas:])
    return draft


def service_of(draft: Draft, pod: PodView) -> str:
    """The service that a pod belongs to: its name is JOB-SERVICE-SERIAL, and a service's name may hold dashes."""
    return pod.name.removeprefix(f"{draft.view.name}-").rpartition("-")[0]


def group_of(draft: Draft, pod: PodView) -> str:
    """The name of what a pod was made for: its service, or its role."""
    return service_of(draft, pod) if pod.origin is Role.SERVICE else pod.origin.value


def _release(draft: Draft, pods: list[PodView]) -> Draft:
    for pod in pods:
        draft = draft.delete(pod, force=False)
    return draft


def _create(draft: Draft, role: Role, count: int, service: str = "") -> Draft:
    if count <= 0:
        return draft
    if left := _pause(draft, service or role.value):
        return draft.wait(f"{service or role}: its pods fail as they start, and the next is made later", left)
    lost = _lost_nodes(draft)
    suspects = tuple(sorted(suspicion.suspects(draft) | suspicion.struck_lately(draft)))
    for _ in range(count):
        serial = draft.status.serial
        name = f"{draft.view.name}-{service or role}-{serial}"
        draft = draft.set(serial=serial + 1).act(CreatePod(name, role, service, lost, suspects))
        draft = draft.tell(EventReason.POD_CREATED, name)
    return draft


def _pause(draft: Draft, name: str) -> timedelta | None:
    """How long to wait until the next pod, after some that failed as they started (`failed_starts`)."""
    next_start = draft.role_status(name).next_start_time
    left = moment(next_start) - draft.view.now if next_start else timedelta()
    return left if left > timedelta() else None


def _lost_nodes(draft: Draft) -> tuple[str, ...]:
    """Nodes whose machines were given up just now. Their room looks free to the scheduler for some seconds yet."""
    now = {pod.node for pod in draft.view.pods if pod.node and draft.verdict(pod.uid).node_lost}
    return tuple(sorted(now | suspicion.lost(draft)))
