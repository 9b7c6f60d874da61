"""How each kind of fault strikes, told in the few things that a body can do to a pod."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Protocol

from robustrl_api.names import Role
from robustrl_operator.faults.kind import FaultKind

log = logging.getLogger(__name__)

FREEZE_SECONDS = 20.0


class Hand(Protocol):
    """What a body can do to a pod, by the pod's name. Every method returns when the harm is done."""

    def playing(self, role: Role) -> list[str]:
        """Pods that play a role now; trainers by rank."""

    async def signal_child(self, pod: str, number: signal.Signals) -> None:
        """Signal the process under the agent's care: a training process, the engine, the managers."""

    async def kill_agent(self, pod: str) -> None:
        """SIGKILL of the agent; the pod's container starts again in place."""

    async def delete(self, pod: str) -> None:
        """Delete the pod, as `kubectl delete pod` does."""

    async def cut_power(self, pod: str) -> None:
        """The pod's machine loses power: nobody says goodbye, nothing comes back."""

    async def freeze(self, pod: str, seconds: float) -> None:
        """The pod's machine answers nobody for a while, then goes on as if nothing had happened."""


async def strike(hand: Hand, kind: FaultKind, index: int = -1) -> tuple[str, ...]:
    """Make something fail now.

    Args:
        index: which of the pods of the role, trainers in order of rank; the last one if nothing is said.

    Returns:
        The pods that were hit.

    Raises:
        LookupError: there is no such pod now.
    """
    role, harm = _KINDS[kind]
    pods = hand.playing(role)
    if not pods:
        raise LookupError(f"there is no {role} to strike")
    log.warning("fault %s strikes %s", kind, pods[index])
    return await harm(hand, pods, index)


Harm = Callable[[Hand, list[str], int], Awaitable[tuple[str, ...]]]


def _one(act: Callable[[Hand, str], Awaitable[None]]) -> Harm:
    async def harm(hand: Hand, pods: list[str], index: int) -> tuple[str, ...]:
        await act(hand, pods[index])
        return (pods[index],)

    return harm


async def _all_machines(hand: Hand, pods: list[str], index: int) -> tuple[str, ...]:
    for pod in pods:
        await hand.cut_power(pod)
    return tuple(pods)


async def _a_rollouts_machine_too(hand: Hand, pods: list[str], index: int) -> tuple[str, ...]:
    """The rollout that would not be promoted, so that a spare is left."""
    rollout = hand.playing(Role.ROLLOUT)[-1]
    await hand.cut_power(pods[index])
    await hand.cut_power(rollout)
    return pods[index], rollout


_KILL = _one(lambda hand, pod: hand.signal_child(pod, signal.SIGKILL))
_STOP = _one(lambda hand, pod: hand.signal_child(pod, signal.SIGSTOP))
_DELETE = _one(lambda hand, pod: hand.delete(pod))
_CUT_POWER = _one(lambda hand, pod: hand.cut_power(pod))

_KINDS: dict[FaultKind, tuple[Role, Harm]] = {
    FaultKind.WORKER: (Role.TRAINER, _KILL),
    FaultKind.WORKER_HANG: (Role.TRAINER, _STOP),
    FaultKind.TRAINER_AGENT: (Role.TRAINER, _one(lambda hand, pod: hand.kill_agent(pod))),
    FaultKind.TRAINER_POD: (Role.TRAINER, _DELETE),
    FaultKind.TRAINER: (Role.TRAINER, _CUT_POWER),
    FaultKind.TRAINER_FREEZE: (Role.TRAINER, _one(lambda hand, pod: hand.freeze(pod, FREEZE_SECONDS))),
    FaultKind.TRAINERS: (Role.TRAINER, _all_machines),
    FaultKind.ENGINE: (Role.ROLLOUT, _KILL),
    FaultKind.ENGINE_HANG: (Role.ROLLOUT, _STOP),
    FaultKind.ROLLOUT_POD: (Role.ROLLOUT, _DELETE),
    FaultKind.ROLLOUT: (Role.ROLLOUT, _CUT_POWER),
    FaultKind.TRAINER_AND_ROLLOUT: (Role.TRAINER, _a_rollouts_machine_too),
    FaultKind.MANAGERS: (Role.MANAGER, _KILL),
    FaultKind.MANAGERS_HANG: (Role.MANAGER, _STOP),
    FaultKind.MANAGER_POD: (Role.MANAGER, _DELETE),
}
