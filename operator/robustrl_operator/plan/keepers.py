"""Whose memory keeps a copy of a trainer's checkpoints: the pod that most likely lives when the trainer's does not.

Another node is better than the same one. A rollout is better than another trainer: trainers may all be lost at once,
and it is a rollout that takes a lost trainer's place. Which rollout does not matter, but the choice must not change
when others come and go: they stand on a ring by the hash of their names, and a trainer takes the next one from the hash
of its state on (consistent hashing). Ranks with equal states, as in plain data parallelism, begin at the same place, so
that one copy serves them all.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator

import xxhash

from robustrl_api.names import Role
from robustrl_api.spec import PeerCopy, RLJobSpec, Strategy
from robustrl_operator.view import JobView, PodView


class Keepers:
    """Everybody who could keep copies, in order, worked out once for all trainers of a view."""

    def __init__(self, view: JobView) -> None:
        here = [pod for pod in view.pods if _can_keep(view, pod)]
        self._spec = view.spec
        self._ranks = {uid: member.rank for uid, member in view.member_by_uid.items()}
        self._trainers = sorted((pod for pod in here if pod.uid in self._ranks), key=self._rank)
        rollouts = [pod for pod in here if pod.uid not in self._ranks and view.current_role(pod) is Role.ROLLOUT]
        self._ring = sorted(rollouts, key=lambda pod: (_hash(pod.name), pod.name))
        self._places = [_hash(pod.name) for pod in self._ring]

    def of(self, trainer: PodView) -> str:
        """Name of the pod that keeps a trainer's copies; "" where there is none."""
        if not _wanted(self._spec):
            return ""
        elsewhere = (pod for pod in self._candidates(trainer) if pod.node != trainer.node)
        best = next(elsewhere, None) or next(self._candidates(trainer), None)
        return best.name if best else ""

    def _candidates(self, trainer: PodView) -> Iterator[PodView]:
        """Best first, but for their nodes: rollouts, then the other trainers, of whom no two choose the same."""
        state = 0 if _has_equal_states(self._spec) else self._rank(trainer)
        start = bisect(self._places, _hash(f"state {state}"))
        yield from _round(self._ring, start)
        after = bisect(self._trainers, self._rank(trainer), key=self._rank)
        yield from (pod for pod in _round(self._trainers, after) if pod.uid != trainer.uid)

    def _rank(self, pod: PodView) -> int:
        return self._ranks[pod.uid]


def _wanted(spec: RLJobSpec) -> bool:
    """Where any fault takes all pods away, copies in their memory are of no use."""
    return spec.checkpoint.peer_copy is PeerCopy.AUTO and spec.recovery.strategy is Strategy.ROLE_BASED


def _can_keep(view: JobView, pod: PodView) -> bool:
    here = bool(pod.address) and not pod.deleting and not view.node_lost(pod.node)
    return here and pod.attempt >= view.status.attempt


def _has_equal_states(spec: RLJobSpec) -> bool:
    return spec.trainer.parallelism.data >= spec.trainer.replicas * spec.trainer.processes_per_pod


def _round(pods: list[PodView], start: int) -> Iterator[PodView]:
    """All of them once, from a place on."""
    return (pods[(start + offset) % len(pods)] for offset in range(len(pods)))


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())
