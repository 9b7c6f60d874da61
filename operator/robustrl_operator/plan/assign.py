"""What each agent shall be, derived from status and pods alone, so that any operator gives the same answer."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from robustrl_api.control import Assignment, Peer
from robustrl_api.names import Role
from robustrl_api.status import Stage, has_ended
from robustrl_operator.analyze.leaving import shall_hand_over
from robustrl_operator.plan.keepers import Keepers
from robustrl_operator.plan.rules.inject import strike_for
from robustrl_operator.plan.standby import standbys
from robustrl_operator.view import JobView, PodView

RENDEZVOUS_PORTS = 2000


def assignments(view: JobView, rendezvous_base: int = 29_500) -> dict[str, Assignment]:
    """The assignment of every pod, by UID.

    Args:
        rendezvous_base: first of the ports at which the ranks of an epoch meet; each epoch has its own, so that
            a late process of an old epoch cannot walk into the new one's meeting.
    """
    peers = tuple(_peer(view, pod) for pod in sorted(view.pods, key=lambda p: p.name) if _is_reachable(view, pod))
    alike = _Alike(standbys(view), shall_hand_over(view), _rendezvous(view, rendezvous_base), Keepers(view))
    said = xxhash.xxh3_64_hexdigest(b"".join(peer.model_dump_json().encode() for peer in peers))
    return {pod.uid: _sealed(_assignment(view, pod, alike), peers, said) for pod in view.pods}


@dataclass(frozen=True, slots=True)
class _Alike:
    """What depends on the job alone, worked out once for all its pods."""

    stand_by: frozenset[str]
    hand_over: bool
    rendezvous: str
    keepers: Keepers


def _assignment(view: JobView, pod: PodView, alike: _Alike) -> Assignment:
    role = view.current_role(pod)
    outdated = pod.attempt < view.status.attempt
    active = not (view.spec.suspend or has_ended(view.status) or outdated)
    common = Assignment(
        role=role,
        epoch=view.status.epoch,
        run=active and role in (Role.ROLLOUT, Role.MANAGER, Role.SERVICE),
        manager=_manager_url(view),
        heartbeat_seconds=float(view.spec.detection.heartbeat_seconds),
        standby=pod.uid in alike.stand_by,
        strike=strike_for(view.status.injection, pod.uid),
        end_life=next((each.life for each in view.status.convictions if each.uid == pod.uid), ""),
    )
    if pod.uid not in view.member_by_uid:
        return common
    trainer = view.spec.trainer
    return common.model_copy(
        update={
            "run": active and _trainers_may_run(view),
            "rank": view.member_by_uid[pod.uid].rank,
            "world_size": trainer.replicas * trainer.processes_per_pod,
            "rendezvous": alike.rendezvous,
            "phase_lease_seconds": float(view.spec.detection.trainer.phase_lease_seconds),
            "hand_over": alike.hand_over,
            "keeper": alike.keepers.of(pod),
        }
    )


def _trainers_may_run(view: JobView) -> bool:
    members = view.status.members
    full = len(members) == view.spec.trainer.replicas and all(member.uid for member in members)
    recovery = view.status.recovery
    waiting = recovery is not None and recovery.stage in (Stage.WAITING_FOR_BACKOFF, Stage.WAITING_FOR_POD)
    return full and not waiting and view.status.epoch > 0


def _rendezvous(view: JobView, base: int) -> str:
    first = next((m for m in view.status.members if m.rank == 0), None)
    pod = view.by_uid.get(first.uid) if first else None
    return f"{pod.address}:{base + view.status.epoch % RENDEZVOUS_PORTS}" if pod and pod.address else ""


def _manager_url(view: JobView) -> str:
    for pod in view.pods:
        if pod.origin is Role.MANAGER and pod.address and not pod.deleting:
            return f"http://{pod.address}:{view.spec.manager.port}"
    return ""


def _is_reachable(view: JobView, pod: PodView) -> bool:
    """A pod that is about to go still hands out its checkpoints; but an engine gets no more requests there."""
    stays = not pod.deleting or not (view.node_lost(pod.node) or view.current_role(pod) is Role.ROLLOUT)
    return bool(pod.address) and stays


def _peer(view: JobView, pod: PodView) -> Peer:
    member = view.member_by_uid.get(pod.uid)
    return Peer(pod=pod.name, role=view.current_role(pod), address=pod.address, rank=member.rank if member else -1)


def _sealed(assignment: Assignment, peers: tuple[Peer, ...], peers_digest: str) -> Assignment:
    """With the peers, which all pods share and of which a large job has thousands: digested once, not once a pod."""
    etag = xxhash.xxh3_64_hexdigest(f"{peers_digest} {assignment.model_dump_json()}".encode())
    return assignment.model_copy(update={"etag": etag, "peers": peers})
