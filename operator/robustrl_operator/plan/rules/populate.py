"""Creates the pods that are missing and takes away the ones too many.

Counted by what pods do now, not by what they were created for: after a promotion it is a rollout that is missing.
"""

from __future__ import annotations

from robustrl_api.names import EventReason, Role
from robustrl_operator.plan import suspicion
from robustrl_operator.plan.draft import CreatePod, Draft
from robustrl_operator.view import PodView


def apply(draft: Draft) -> Draft:
    draft = _create(draft, Role.MANAGER, draft.spec.manager.replicas - len(draft.live(Role.MANAGER)))
    draft = _trainers(draft)
    rollouts = draft.live(Role.ROLLOUT)
    draft = _create(draft, Role.ROLLOUT, draft.spec.rollout.replicas - len(rollouts))
    draft = _release(draft, rollouts[draft.spec.rollout.replicas :])
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


def _release(draft: Draft, pods: list[PodView]) -> Draft:
    for pod in pods:
        draft = draft.delete(pod, force=False)
    return draft


def _create(draft: Draft, role: Role, count: int, service: str = "") -> Draft:
    for _ in range(count):
        serial = draft.status.serial
        name = f"{draft.view.name}-{service or role}-{serial}"
        draft = draft.set(serial=serial + 1).act(
            CreatePod(name, role, service, _lost_nodes(draft), tuple(sorted(suspicion.suspects(draft))))
        )
        draft = draft.tell(EventReason.POD_CREATED, name)
    return draft


def _lost_nodes(draft: Draft) -> tuple[str, ...]:
    """Nodes whose pods have just been given up. Their room looks free to the scheduler for some seconds yet."""
    lost = {pod.node for pod in draft.view.pods if pod.node and draft.verdict(pod.uid).node_lost}
    return tuple(sorted(lost))
