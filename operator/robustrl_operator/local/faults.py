"""Faults by name: `--fault KIND@STEP`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from robustrl_api.names import Role
from robustrl_operator.local.body import LocalBody
from robustrl_operator.local.pod_process import PodProcess

log = logging.getLogger(__name__)


class FaultKind(StrEnum):
    """What can be made to fail."""

    WORKER = "worker"
    """SIGKILL of one training process."""
    TRAINER = "trainer"
    """A trainer's machine loses power."""
    TRAINER_POD = "trainer-pod"
    """A trainer's pod is deleted."""
    TRAINER_AGENT = "trainer-agent"
    """SIGKILL of a trainer's agent; its container starts again in place."""
    ENGINE = "engine"
    """SIGKILL of one inference engine."""
    ROLLOUT = "rollout"
    """A rollout's machine loses power."""
    ROLLOUT_POD = "rollout-pod"
    """A rollout's pod is deleted."""
    MANAGERS = "managers"
    """SIGKILL of the managers' process."""
    MANAGER_POD = "manager-pod"
    """The managers' pod is deleted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that strikes once `step` steps are committed."""

    kind: FaultKind
    step: int

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read KIND@STEP.

        Raises:
            ValueError: with the kinds there are.
        """
        kind, _, step = text.partition("@")
        if kind not in set(FaultKind) or not step.isdecimal():
            raise ValueError(f"{text!r}: expected KIND@STEP, such as trainer@120; kinds: {', '.join(FaultKind)}")
        return cls(FaultKind(kind), int(step))


async def strike(body: LocalBody, kind: FaultKind, index: int = -1) -> str:
    """Make one thing fail now; the name of the pod that was hit.

    Args:
        index: which of the pods of the role, in order of rank; the last one if nothing is said.
    """
    role, act = _ACTS[kind]
    pods = body.playing(role)
    if not pods:
        raise LookupError(f"there is no {role} to strike")
    pod = pods[index]
    log.warning("fault %s strikes %s", kind, pod.name)
    await act(body, pod)
    return pod.name


async def _kill_node(body: LocalBody, pod: PodProcess) -> None:
    pod.kill_node()


async def _kill_agent(body: LocalBody, pod: PodProcess) -> None:
    pod.kill_agent()


async def _delete(body: LocalBody, pod: PodProcess) -> None:
    await body.lose(pod)


async def _kill_child(body: LocalBody, pod: PodProcess) -> None:
    """The process under the agent's care, which leads a session of its own; the warm worker does not."""
    agent = pod.agent.pid if pod.agent else -1
    for pid in pod.descendants():
        if _stat(pid, PARENT) == agent and _stat(pid, SESSION) == pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return


PARENT, SESSION = 1, 3
"""Fields of /proc/PID/stat, counted after the command's name."""


def _stat(pid: int, field: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[field])
    except OSError:
        return -1


_ACTS: dict[FaultKind, tuple[Role, Callable[[LocalBody, PodProcess], Awaitable[None]]]] = {
    FaultKind.WORKER: (Role.TRAINER, _kill_child),
    FaultKind.TRAINER: (Role.TRAINER, _kill_node),
    FaultKind.TRAINER_POD: (Role.TRAINER, _delete),
    FaultKind.TRAINER_AGENT: (Role.TRAINER, _kill_agent),
    FaultKind.ENGINE: (Role.ROLLOUT, _kill_child),
    FaultKind.ROLLOUT: (Role.ROLLOUT, _kill_node),
    FaultKind.ROLLOUT_POD: (Role.ROLLOUT, _delete),
    FaultKind.MANAGERS: (Role.MANAGER, _kill_child),
    FaultKind.MANAGER_POD: (Role.MANAGER, _delete),
}
