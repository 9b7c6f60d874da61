"""What can be made to fail, by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """A name for each; what it does is told in `strike`, what must follow in `matrix`."""

    WORKER = "worker"
    WORKER_HANG = "worker-hang"
    TRAINER_AGENT = "trainer-agent"
    TRAINER_POD = "trainer-pod"
    TRAINER = "trainer"
    TRAINER_FREEZE = "trainer-freeze"
    TRAINERS = "trainers"
    ENGINE = "engine"
    ENGINE_HANG = "engine-hang"
    ROLLOUT_POD = "rollout-pod"
    ROLLOUT = "rollout"
    TRAINER_AND_ROLLOUT = "trainer-and-rollout"
    MANAGERS = "managers"
    MANAGERS_HANG = "managers-hang"
    MANAGER_POD = "manager-pod"


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
