"""The fault matrix: what each fault is taken for, what restarts because of it, and what must not.

One table for the docs page, the local runner and the runner on the cluster. What holds for every row besides: no role
outside the scope restarts, the job goes on, nothing is lost or trained twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from robustrl_operator.analyze import Cause
from robustrl_operator.faults.kind import FaultKind


class Place(StrEnum):
    """Where a row can be played."""

    LOCAL = "local"
    CLUSTER = "cluster"


class Moment(StrEnum):
    """When a fault strikes."""

    ANY = "any"
    FIRST_STEP = "first step"
    """Before the job has made a step."""
    SAME_STEP = "same step"
    """And again as soon as the trainers are at work again, before they have made the step."""
    EVERY_TRY = "same step, always"
    """Whenever the trainers come to a step: the script is at fault itself."""
    PROMOTION = "promotion"
    """And the pod that takes the lost one's place is struck as well, while it starts as a trainer."""
    PULL = "pull"
    """While the one that is struck pulls weights."""
    RELAY = "relay"
    """While others pull the weights that the one that is struck has already."""
    PUBLISH = "publish"
    """When a step is committed and its weights are not announced yet."""
    LEADER = "leader's machine"
    """While the operator that leads is on the machine that is struck; else it is on another one."""


class Shape(StrEnum):
    """What a job must be like for a row. Any job will do for most."""

    USUAL = "usual"
    THREE_TRAINERS = "three trainers"
    FRONTED = "engines with a front"
    """Each engine is a process that only answers, and another behind it that generates."""
    OWN_VOLUME = "checkpoints on a volume of their own"
    BIG = "a model of 48 MB"
    """So that its weights are on their way for a while."""
    WATCHED = "node agents that read exporters"
    """The exporters are stand-ins: the development cluster has no GPU."""
    FAILS_TO_RESTART = "trainers that fail as they start again, twice"
    LINGERING = "trainers whose first step takes 5 s"
    """So that it can be struck."""
    RAISING = "a script that is at fault in its fourth step"


EVERYWHERE = frozenset(Place)
CLUSTER = frozenset({Place.CLUSTER})


@dataclass(frozen=True)
class Row:
    """A fault and what must follow.

    Attributes:
        what: the fault, for people.
        causes: verdicts that it may be given; which one comes first can depend on who notices first.
        rule: the recovery rule that answers it (DESIGN section 11); empty where it is no fault of the job's.
        epochs: by how much the trainers' epoch rises.
        index: which of the role's pods is struck.
        keeps_pod: whether the pods that were struck go on.
        keeps_agent: whether the agents in them go on too.
        incidents: faults put on record.
        whole_job: whether every pod is replaced.
        seconds: how long it lasts; what must follow is looked at afterwards.
        shape: the job that it strikes.
        undone: committed steps that are trained again.
        may_undo: how many more may be, since copies of their checkpoints go out in the background: as many steps as the
            ledger keeps the batches of.
        degraded: reason of condition Degraded while it lasts; empty where it is not looked at.
        fails: reason of condition Failed if the job rightly ends by it; empty if it goes on.
        belated: whether it takes effect when the struck process happens to notice. Times count from the verdict then.
    """

    kind: FaultKind
    what: str
    causes: tuple[Cause, ...] = ()
    rule: str = ""
    epochs: int = 0
    index: int = -1
    keeps_pod: bool = True
    keeps_agent: bool = True
    incidents: int = 1
    places: frozenset[Place] = EVERYWHERE
    moment: Moment = Moment.ANY
    whole_job: bool = False
    seconds: float = 0.0
    shape: Shape = Shape.USUAL
    undone: int = 0
    may_undo: int = 0
    degraded: str = ""
    fails: str = ""
    belated: bool = False

    @property
    def name(self) -> str:
        if self.shape is Shape.FAILS_TO_RESTART:
            return f"{self.kind} and failed restarts"
        if self.moment is not Moment.ANY:
            return f"{self.kind} in the {self.moment}"
        return f"{self.kind} of rank {self.index}" if self.index >= 0 else str(self.kind)

    @property
    def needs_standby(self) -> bool:
        """Whether another pod takes a trainer's place."""
        return self.epochs > 0 and not self.keeps_pod


EXITED = (Cause.WORKER_EXITED,)
EXITS = (Cause.WORKER_EXITED, Cause.PEER_LOST)
POD_GONE = (Cause.POD_DELETED,)
LEAVING = (Cause.POD_LEAVING,)
MACHINE_GONE = (Cause.HEARTBEAT_LOST, Cause.NODE_LOST, Cause.POD_DELETED)
K = FaultKind

MATRIX: tuple[Row, ...] = (
    Row(K.WORKER, "training process killed in the job's first step", EXITED, "4a", epochs=1,
        moment=Moment.FIRST_STEP, whole_job=True, keeps_pod=False, shape=Shape.LINGERING),
    Row(K.WORKER, "training process killed", EXITED, "2", epochs=1),
    Row(K.WORKER, "training process of rank 0 killed", EXITED, "2", epochs=1, index=0),
    Row(K.WORKERS, "training processes of all trainers killed at once", EXITS, "2", epochs=1),
    Row(K.WORKER_HANG, "training process stopped (SIGSTOP), the others hang in a collective", (Cause.WORKER_HUNG,), "2",
        epochs=1),
    Row(K.WORKER_EXCEPTION, "exception in a training process, once", EXITS, "2", epochs=1),
    Row(K.WORKER_MEMORY, "training process gets no more memory", EXITS, "2", epochs=1, belated=True),
    Row(K.ENGINE, "engine killed", (Cause.ENGINE_EXITED,), "1"),
    Row(K.ENGINE_HANG, "engine stopped (SIGSTOP)", (Cause.ENGINE_HUNG,), "1"),
    Row(K.ENGINE_SLOW, "engine slow for 15 s", incidents=0, seconds=15.0),
    Row(K.MANAGERS, "managers' process killed", (Cause.MANAGER_EXITED,), "5"),
    Row(K.MANAGERS_HANG, "managers' process stopped (SIGSTOP)", (Cause.MANAGER_HUNG,), "5"),
    Row(K.TRAINER_AGENT, "trainer's agent killed", (Cause.AGENT_RESTARTED,), "3", epochs=1, keeps_pod=False),
    Row(K.ROLLOUT_AGENT, "rollout's agent killed", (Cause.ENGINE_EXITED,), "1", keeps_agent=False),
    Row(K.MANAGER_AGENT, "managers' agent killed", (Cause.MANAGER_EXITED,), "5", keeps_agent=False),
    Row(K.ROLLOUT_POD, "rollout pod deleted", POD_GONE, "1", keeps_pod=False),
    Row(K.IMAGE_GONE, "rollout pod deleted, and the image of its replacement cannot be pulled for 30 s", POD_GONE, "1",
        keeps_pod=False, places=CLUSTER, seconds=30.0, degraded="PodsCannotStart"),
    Row(K.TRAINER_POD, "trainer pod deleted", LEAVING, "7", epochs=1, keeps_pod=False),
    Row(K.TRAINER_DRAIN, "trainer's node drained", LEAVING, "7", epochs=1, keeps_pod=False, places=CLUSTER),
    Row(K.MANAGER_POD, "manager pod deleted", POD_GONE, "5", keeps_pod=False),
    Row(K.ROLLOUT, "rollout's machine dead", MACHINE_GONE, "1", keeps_pod=False),
    Row(K.MANAGER, "managers' machine dead", MACHINE_GONE, "5", keeps_pod=False),
    Row(K.MANAGER, "machine of the managers and of the operator that leads dead", MACHINE_GONE, "5", keeps_pod=False,
        places=CLUSTER, moment=Moment.LEADER),
    Row(K.TRAINER, "machine of rank 0 dead", MACHINE_GONE, "3", epochs=1, index=0, keeps_pod=False),
    Row(K.TRAINER, "trainer's machine dead", MACHINE_GONE, "3", epochs=1, keeps_pod=False),
    Row(K.TRAINER_FREEZE, "trainer's machine answers nobody for 20 s and comes back", MACHINE_GONE, "3", epochs=1,
        keeps_pod=False),
    Row(K.TRAINER_CUT, "trainer's node cut off for 60 s and back", MACHINE_GONE, "3", epochs=1, keeps_pod=False,
        places=CLUSTER, seconds=60.0),
    Row(K.TRAINER_AND_ROLLOUT, "machines of a trainer and a rollout dead at once", MACHINE_GONE, "3", epochs=1,
        keeps_pod=False, incidents=2),
    Row(K.TRAINERS, "machines of all trainers dead at once", MACHINE_GONE, "3", epochs=1, keeps_pod=False, may_undo=5),
    Row(K.WORKER, "training process killed twice in one step", EXITS, "4", epochs=2, incidents=2,
        moment=Moment.SAME_STEP, whole_job=True, keeps_pod=False, shape=Shape.LINGERING),
    Row(K.WORKER_EXCEPTION, "exception in a training process, always in the same step", EXITS, "4b", epochs=3,
        incidents=4, moment=Moment.EVERY_TRY, whole_job=True, keeps_pod=False, fails="NoProgress", shape=Shape.RAISING),
    Row(K.TRAINER, "trainer's machine dead, and the rollout that takes its place as it starts", MACHINE_GONE, "3",
        epochs=2, incidents=2, keeps_pod=False, moment=Moment.PROMOTION, shape=Shape.THREE_TRAINERS),
    Row(K.TRAINER_PAIR, "machines of two of three trainers dead at once", MACHINE_GONE, "3", epochs=1, keeps_pod=False,
        shape=Shape.THREE_TRAINERS),
    Row(K.ENGINE_BEHIND, "engine stopped behind a front that answers", (Cause.ENGINE_HUNG,), "1", shape=Shape.FRONTED),
    Row(K.ROLLOUT, "rollout's machine dead while it pulls weights", MACHINE_GONE, "1", keeps_pod=False,
        moment=Moment.PULL, shape=Shape.BIG),
    Row(K.ROLLOUT, "rollout's machine dead while others pull weights that it has", MACHINE_GONE, "1", keeps_pod=False,
        moment=Moment.RELAY, shape=Shape.BIG),
    Row(K.TRAINER, "machine of rank 0 dead between the commit of a step and the announcement of its weights",
        MACHINE_GONE, "3", epochs=1, index=0, keeps_pod=False, moment=Moment.PUBLISH, shape=Shape.BIG),
    Row(K.STORAGE_FULL, "volume of the checkpoints full for 5 s", incidents=0, seconds=5.0, shape=Shape.OWN_VOLUME,
        degraded="CheckpointsNotStored"),
    Row(K.STORAGE_READ_ONLY, "volume of the checkpoints read-only for 5 s", incidents=0, seconds=5.0,
        shape=Shape.OWN_VOLUME, degraded="CheckpointsNotStored"),
    Row(K.CHECKPOINT_DAMAGE, "every copy of the newest checkpoint damaged, and a training process killed", EXITS, "2",
        epochs=1, shape=Shape.OWN_VOLUME, undone=1),
    Row(K.WORKER, "training process killed, and the restart of the trainers fails twice", EXITS, "4c", epochs=3,
        incidents=3, keeps_pod=False, whole_job=True, shape=Shape.FAILS_TO_RESTART),
    Row(K.GPU, "trainer's GPU fallen off the bus (XID 79)", (Cause.GPU_FAILED,), "3", epochs=1, keeps_pod=False,
        places=CLUSTER, shape=Shape.WATCHED),
    Row(K.EXPORTER_ABSENT, "no GPU exporter answers for 30 s", incidents=0, places=CLUSTER, seconds=30.0,
        shape=Shape.WATCHED),
    Row(K.EXPORTER_STUCK, "exporters' profiling counters at zero for 30 s while the GPUs work", incidents=0,
        places=CLUSTER, seconds=30.0, shape=Shape.WATCHED),
    Row(K.EXPORTER_LYING, "exporters say for 30 s that all GPUs idle, which work", incidents=0, places=CLUSTER,
        seconds=30.0, shape=Shape.WATCHED),
    Row(K.OPERATORS, "every operator's pod deleted", incidents=0, places=CLUSTER),
    Row(K.LEADER, "the operator that leads dies, another takes over", incidents=0, places=CLUSTER),
    Row(K.LEASE, "the operators' lease is somebody else's for 10 s", incidents=0, places=CLUSTER, seconds=10.0),
    Row(K.API_SERVER, "API server answers nobody for 30 s", incidents=0, places=CLUSTER, seconds=30.0),
)  # fmt: skip


def rows(place: Place, shape: Shape = Shape.USUAL) -> tuple[Row, ...]:
    """The rows that can be played at a place, on jobs of a shape."""
    return tuple(row for row in MATRIX if place in row.places and row.shape is shape)
