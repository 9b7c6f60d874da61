"""The fault matrix: what each fault is taken for, what restarts because of it, and what must not.

One table for the docs page, the local runner and the runner on the cluster. What holds for every row besides: no role
outside the scope restarts, the job goes on to its end, nothing is lost or trained twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from robustrl_operator.analyze import Cause
from robustrl_operator.faults.kind import FaultKind


@dataclass(frozen=True)
class Row:
    """A fault and what must follow.

    Attributes:
        what: the fault, for people.
        causes: verdicts that it may be given; which one comes first can depend on who notices first.
        rule: the recovery rule that answers it (DESIGN section 11).
        epochs: by how much the trainers' epoch rises.
        index: which of the role's pods is struck.
        keeps_pod: whether the pods that were struck go on.
        keeps_agent: whether the agents in them go on too.
        incidents: faults put on record.
    """

    kind: FaultKind
    what: str
    causes: tuple[Cause, ...]
    rule: str
    epochs: int = 0
    index: int = -1
    keeps_pod: bool = True
    keeps_agent: bool = True
    incidents: int = 1

    @property
    def name(self) -> str:
        return f"{self.kind} of rank {self.index}" if self.index >= 0 else str(self.kind)


AGENT_GONE = (Cause.WORKER_EXITED, Cause.PEER_LOST)
POD_GONE = (Cause.POD_DELETED,)
MACHINE_GONE = (Cause.HEARTBEAT_LOST, Cause.NODE_LOST, Cause.POD_DELETED)

MATRIX: tuple[Row, ...] = (
    Row(FaultKind.WORKER, "training process killed", (Cause.WORKER_EXITED,), "2", epochs=1),
    Row(FaultKind.WORKER, "training process of rank 0 killed", (Cause.WORKER_EXITED,), "2", epochs=1, index=0),
    Row(FaultKind.WORKER_HANG, "training process stopped (SIGSTOP)", (Cause.WORKER_HUNG,), "2", epochs=1),
    Row(FaultKind.ENGINE, "engine killed", (Cause.ENGINE_EXITED,), "1"),
    Row(FaultKind.ENGINE_HANG, "engine stopped (SIGSTOP)", (Cause.ENGINE_HUNG,), "1"),
    Row(FaultKind.MANAGERS, "managers' process killed", (Cause.MANAGER_EXITED,), "5"),
    Row(FaultKind.MANAGERS_HANG, "managers' process stopped (SIGSTOP)", (Cause.MANAGER_HUNG,), "5"),
    Row(FaultKind.TRAINER_AGENT, "trainer's agent killed", AGENT_GONE, "2", epochs=1, keeps_agent=False),
    Row(FaultKind.ROLLOUT_POD, "rollout pod deleted", POD_GONE, "1", keeps_pod=False),
    Row(FaultKind.TRAINER_POD, "trainer pod deleted", (Cause.POD_LEAVING,), "7", epochs=1, keeps_pod=False),
    Row(FaultKind.MANAGER_POD, "manager pod deleted", POD_GONE, "5", keeps_pod=False),
    Row(FaultKind.ROLLOUT, "rollout's machine dead", MACHINE_GONE, "1", keeps_pod=False),
    Row(FaultKind.TRAINER, "machine of rank 0 dead", MACHINE_GONE, "3", epochs=1, index=0, keeps_pod=False),
    Row(FaultKind.TRAINER, "trainer's machine dead", MACHINE_GONE, "3", epochs=1, keeps_pod=False),
    Row(
        FaultKind.TRAINER_FREEZE, "trainer's machine answers nobody for 20 s and comes back", MACHINE_GONE, "3",
        epochs=1, keeps_pod=False,
    ),
    Row(
        FaultKind.TRAINER_AND_ROLLOUT, "machines of a trainer and a rollout dead at once", MACHINE_GONE, "3",
        epochs=1, keeps_pod=False, incidents=2,
    ),
    Row(
        FaultKind.TRAINERS, "machines of all trainers dead at once", MACHINE_GONE, "3", epochs=1, keeps_pod=False,
    ),
)  # fmt: skip
