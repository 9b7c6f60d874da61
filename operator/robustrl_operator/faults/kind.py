"""What can be made to fail, by name: which role is struck, and what is done to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from robustrl_api.control import Harm
from robustrl_api.names import Role
from robustrl_api.status import InjectionStatus


class FaultKind(StrEnum):
    """A name for each; what it does stands in `KINDS`, what must follow in `matrix`."""

    WORKER = "worker"
    WORKERS = "workers"
    WORKER_HANG = "worker-hang"
    WORKER_EXCEPTION = "worker-exception"
    WORKER_MEMORY = "worker-memory"
    TRAINER_AGENT = "trainer-agent"
    TRAINER_POD = "trainer-pod"
    TRAINER = "trainer"
    TRAINER_FREEZE = "trainer-freeze"
    TRAINER_CUT = "trainer-cut"
    TRAINER_DRAIN = "trainer-drain"
    TRAINER_PAIR = "trainer-pair"
    TRAINERS = "trainers"
    GPU = "gpu"
    ENGINE = "engine"
    ENGINE_HANG = "engine-hang"
    ENGINE_BEHIND = "engine-behind"
    ENGINE_SLOW = "engine-slow"
    ROLLOUT_AGENT = "rollout-agent"
    ROLLOUT_POD = "rollout-pod"
    IMAGE_GONE = "image-gone"
    ROLLOUT = "rollout"
    TRAINER_AND_ROLLOUT = "trainer-and-rollout"
    MANAGERS = "managers"
    MANAGERS_HANG = "managers-hang"
    MANAGER_AGENT = "manager-agent"
    MANAGER_POD = "manager-pod"
    MANAGER = "manager"
    CHECKPOINT_DAMAGE = "checkpoint-damage"
    STORAGE_FULL = "storage-full"
    STORAGE_READ_ONLY = "storage-read-only"
    EXPORTER_ABSENT = "exporter-absent"
    EXPORTER_STUCK = "exporter-stuck"
    EXPORTER_LYING = "exporter-lying"
    OPERATORS = "operators"
    LEADER = "leader"
    LEASE = "lease"
    API_SERVER = "api-server"


class Means(StrEnum):
    """What is done to a pod from outside. What its agent can do to it is a `Harm`."""

    DELETE = "Delete"
    """As `kubectl delete pod` does."""
    CUT_POWER = "CutPower"
    """Its machine loses power: nobody says goodbye, nothing comes back."""
    FREEZE = "Freeze"
    """Its machine answers nobody for `FREEZE_SECONDS`, then goes on as if nothing had happened."""
    CUT_LINK = "CutLink"
    """Its node is unplugged for `CUT_SECONDS`: all on it runs on, and nobody can reach it."""
    DRAIN = "Drain"
    """Its node is drained, as `kubectl drain` does. What of that is the job's own, the eviction of its pod, can be done
    on any cluster."""
    TAKE_IMAGE = "TakeImage"
    """The image of the job's containers is in no node any more, and nobody has it to pull from."""
    BREAK_GPU = "BreakGpu"
    """Its GPU has fallen off the bus, as its node's exporter says (XID 79), or as the node's agent says for it."""
    SILENCE_EXPORTERS = "SilenceExporters"
    """No GPU exporter answers."""
    STICK_EXPORTERS = "StickExporters"
    """The exporters' profiling counters hang at zero while the GPUs work."""
    FALSIFY_EXPORTERS = "FalsifyExporters"
    """The exporters say with one voice that all GPUs idle, which work."""
    DELETE_OPERATORS = "DeleteOperators"
    """Every operator's pod is deleted at once."""
    KILL_LEADER = "KillLeader"
    """The operator that leads is taken away without a goodbye."""
    TAKE_LEASE = "TakeLease"
    """Somebody who does nothing writes himself into the operators' lease, for `LEASE_SECONDS`."""
    DAMAGE_CHECKPOINT = "DamageCheckpoint"
    """A byte of every copy of the newest committed checkpoint is changed, in memory and in storage."""
    FILL_STORAGE = "FillStorage"
    """The volume of the checkpoints gets full."""
    SEAL_STORAGE = "SealStorage"
    """The volume of the checkpoints becomes read-only."""
    STOP_API = "StopApi"
    """The API server answers nobody for `API_SECONDS`."""


Deed = Harm | Means
FREEZE_SECONDS = 20.0
CUT_SECONDS = 60.0
API_SECONDS = 30.0
LEASE_SECONDS = 10.0
EXPORTER_SECONDS = 30.0
IMAGE_SECONDS = 30.0
OF_EXPORTERS = frozenset({Means.SILENCE_EXPORTERS, Means.STICK_EXPORTERS, Means.FALSIFY_EXPORTERS})
LASTING: dict[str, float] = {Means.TAKE_IMAGE: IMAGE_SECONDS, **dict.fromkeys(OF_EXPORTERS, EXPORTER_SECONDS)}
"""By deed: for how many seconds it goes on, where it has to be kept up."""
TAKEOVER_SECONDS = 4.0
"""What passes until another operator leads: the lease runs out, and agents find who holds it then."""
AWAY: dict[str, float] = {
    Means.KILL_LEADER: TAKEOVER_SECONDS,
    Means.DELETE_OPERATORS: TAKEOVER_SECONDS,
    Means.TAKE_LEASE: LEASE_SECONDS,
    Means.STOP_API: API_SECONDS,
}
"""By deed: for how many seconds no operator can act, and then one does that knows nothing but what is stored."""
NO_FAULTS: frozenset[str] = frozenset({Harm.SLOW, Harm.STORAGE_FULL, Harm.STORAGE_READ_ONLY, *OF_EXPORTERS, *AWAY})
"""Deeds that are no faults of the job: nothing is to be put on record because of them."""


def is_no_fault(injection: InjectionStatus) -> bool:
    """Whether everything that is done is of `NO_FAULTS`."""
    return all(target.deed in NO_FAULTS for target in injection.targets)


@dataclass(frozen=True, slots=True)
class Anatomy:
    """How a kind strikes.

    Attributes:
        role: whose pod is struck; None where it is none of the job's pods but what surrounds them.
        what: the fault, for people.
        every: whether all pods of the role are struck, and not some of them.
        count: how many of them otherwise.
        first: what is done to each before, in this order.
        also: another role of which one pod is struck in the same way, the one that would be promoted last.
    """

    role: Role | None
    deed: Deed
    what: str
    every: bool = False
    count: int = 1
    first: tuple[Deed, ...] = ()
    also: Role | None = None


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing done to one pod; the pod is empty where the harm is to what surrounds the job."""

    pod: str
    deed: Deed


K, T, R, M = FaultKind, Role.TRAINER, Role.ROLLOUT, Role.MANAGER

KINDS: dict[FaultKind, Anatomy] = {
    K.WORKER: Anatomy(T, Harm.KILL, "a training process is killed (SIGKILL)"),
    K.WORKERS: Anatomy(T, Harm.KILL, "a training process of every trainer is killed", every=True),
    K.WORKER_HANG: Anatomy(T, Harm.STOP, "a training process stops (SIGSTOP); the others wait for it in a collective"),
    K.WORKER_EXCEPTION: Anatomy(T, Harm.INTERRUPT, "a training process meets an exception (KeyboardInterrupt)"),
    K.WORKER_MEMORY: Anatomy(T, Harm.STARVE, "a training process gets no more memory"),
    K.TRAINER_AGENT: Anatomy(T, Harm.KILL_AGENT, "a trainer's agent dies, and its container with it"),
    K.TRAINER_POD: Anatomy(T, Means.DELETE, "a trainer's pod is deleted"),
    K.TRAINER: Anatomy(T, Means.CUT_POWER, "a trainer's machine loses power"),
    K.TRAINER_FREEZE: Anatomy(T, Means.FREEZE, "a trainer's machine answers nobody for 20 s and comes back"),
    K.TRAINER_CUT: Anatomy(T, Means.CUT_LINK, "a trainer's node is cut off for 60 s and comes back"),
    K.TRAINER_DRAIN: Anatomy(T, Means.DRAIN, "a trainer's node is drained"),
    K.TRAINER_PAIR: Anatomy(T, Means.CUT_POWER, "the machines of two trainers lose power at once", count=2),
    K.TRAINERS: Anatomy(T, Means.CUT_POWER, "the machines of all trainers lose power at once", every=True),
    K.GPU: Anatomy(T, Means.BREAK_GPU, "a trainer's GPU falls off the bus"),
    K.ENGINE: Anatomy(R, Harm.KILL, "an engine is killed (SIGKILL)"),
    K.ENGINE_HANG: Anatomy(R, Harm.STOP, "an engine stops (SIGSTOP)"),
    K.ENGINE_BEHIND: Anatomy(
        R, Harm.STOP_BELOW, "the processes behind an engine's front stop (SIGSTOP), and the front goes on answering"
    ),
    K.ENGINE_SLOW: Anatomy(R, Harm.SLOW, "an engine gets a fifth of its processor time for 15 s, which is no fault"),
    K.ROLLOUT_AGENT: Anatomy(R, Harm.KILL_AGENT, "a rollout's agent dies, and its container with it"),
    K.ROLLOUT_POD: Anatomy(R, Means.DELETE, "a rollout's pod is deleted"),
    K.IMAGE_GONE: Anatomy(
        R,
        Means.DELETE,
        "a rollout's pod is deleted, and the image of its replacement cannot be pulled",
        first=(Means.TAKE_IMAGE,),
    ),
    K.ROLLOUT: Anatomy(R, Means.CUT_POWER, "a rollout's machine loses power"),
    K.TRAINER_AND_ROLLOUT: Anatomy(
        T, Means.CUT_POWER, "machines of a trainer and a rollout lose power at once", also=R
    ),
    K.MANAGERS: Anatomy(M, Harm.KILL, "the managers' process is killed (SIGKILL)"),
    K.MANAGERS_HANG: Anatomy(M, Harm.STOP, "the managers' process stops (SIGSTOP)"),
    K.MANAGER_AGENT: Anatomy(M, Harm.KILL_AGENT, "the managers' agent dies, and its container with it"),
    K.MANAGER_POD: Anatomy(M, Means.DELETE, "the managers' pod is deleted"),
    K.MANAGER: Anatomy(M, Means.CUT_POWER, "the managers' machine loses power"),
    K.CHECKPOINT_DAMAGE: Anatomy(
        T,
        Harm.KILL,
        "every copy of the newest checkpoint is damaged, and a training process is killed",
        first=(Harm.STOP, Means.DAMAGE_CHECKPOINT),
    ),
    K.STORAGE_FULL: Anatomy(None, Means.FILL_STORAGE, "the volume of the checkpoints is full"),
    K.STORAGE_READ_ONLY: Anatomy(None, Means.SEAL_STORAGE, "the volume of the checkpoints is read-only"),
    K.EXPORTER_ABSENT: Anatomy(None, Means.SILENCE_EXPORTERS, "no GPU exporter answers for 30 s"),
    K.EXPORTER_STUCK: Anatomy(None, Means.STICK_EXPORTERS, "the exporters' profiling counters hang at zero for 30 s"),
    K.EXPORTER_LYING: Anatomy(None, Means.FALSIFY_EXPORTERS, "the exporters say for 30 s that GPUs idle which work"),
    K.OPERATORS: Anatomy(None, Means.DELETE_OPERATORS, "every operator's pod is deleted"),
    K.LEADER: Anatomy(None, Means.KILL_LEADER, "the operator that leads dies without a goodbye"),
    K.LEASE: Anatomy(None, Means.TAKE_LEASE, "the operators' lease is somebody else's for 10 s"),
    K.API_SERVER: Anatomy(None, Means.STOP_API, "the API server answers nobody for 30 s"),
}


def aim(kind: FaultKind, playing: Callable[[Role], list[str]], index: int = -1) -> tuple[Blow, ...]:
    """Whom a fault strikes, and how.

    Args:
        playing: names of the pods that play a role now; trainers in order of rank.
        index: which of the pods of the role; the last one if nothing is said.

    Raises:
        LookupError: there is no such pod now.
    """
    anatomy = KINDS[kind]
    struck = [""] if anatomy.role is None else whom(kind, anatomy.role, playing, index)
    return tuple(Blow(pod, deed) for deed in (*anatomy.first, anatomy.deed) for pod in struck)


def whom(kind: FaultKind, role: Role, playing: Callable[[Role], list[str]], index: int = -1) -> list[str]:
    """The pods that a fault strikes, each once.

    Args:
        role: that of the kind.
        playing, index: as for `aim`.

    Raises:
        LookupError: there is no such pod now.
    """
    anatomy, pods = KINDS[kind], playing(role)
    if not -len(pods) <= index < len(pods):
        raise LookupError(f"there is no {role} {'to strike' if index < 0 else index} now")
    struck = list(pods) if anatomy.every else _some(pods, index, anatomy.count)
    if anatomy.also is not None:
        others = [pod for pod in playing(anatomy.also) if pod not in struck]
        if not others:
            raise LookupError(f"there is no {anatomy.also} to strike now")
        struck.append(others[-1])
    return struck


def _some(pods: list[str], index: int, count: int) -> list[str]:
    """The one that is meant, and the others after it, round and round."""
    if count > len(pods):
        raise LookupError(f"there are {len(pods)} to strike, not {count}")
    first = index % len(pods)
    return [*pods[first:], *pods[:first]][:count]


def kinds_text() -> str:
    """Every kind with what it does, a line each."""
    return "\n".join(f"  {kind:20s} {anatomy.what}" for kind, anatomy in KINDS.items())


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
