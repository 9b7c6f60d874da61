"""RLJob.spec: what the user asks for. The one source of the CRD, of the defaults and of `kubectl explain`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from robustrl_api.base import DocumentedModel
from robustrl_api.names import CONTROLLER
from robustrl_api.pod_template import PodTemplate, Word

FunctionPath = Annotated[
    str, Field(max_length=256, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", examples=["sort4.tasks:rollout"])
]
Name = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Seconds = Annotated[int, Field(ge=1, le=86_400)]
Port = Annotated[int, Field(ge=1024, le=65_535)]


class Mode(StrEnum):
    SYNC = "Sync"
    ASYNC = "Async"


class EngineType(StrEnum):
    EMBEDDED = "Embedded"
    SGLANG = "SGLang"
    VLLM = "VLLM"
    CUSTOM = "Custom"


class Strategy(StrEnum):
    ROLE_BASED = "RoleBased"
    WHOLE_JOB = "WholeJob"


class StandbyMode(StrEnum):
    AUTO = "Auto"
    OFF = "Off"


class PeerCopy(StrEnum):
    AUTO = "Auto"
    OFF = "Off"


class WarmMode(StrEnum):
    AUTO = "Auto"
    OFF = "Off"


class InjectionMode(StrEnum):
    OFF = "Off"
    ALLOWED = "Allowed"


class Parallelism(DocumentedModel):
    data: int = Field(default=1, ge=1, le=65_536)
    """Data-parallel size."""
    tensor: int = Field(default=1, ge=1, le=1024)
    """Tensor-parallel size."""
    pipeline: int = Field(default=1, ge=1, le=1024)
    """Pipeline-parallel size."""
    expert: int = Field(default=1, ge=1, le=1024)
    """Expert-parallel size."""
    context: int = Field(default=1, ge=1, le=1024)
    """Context-parallel size."""


class WarmWorker(DocumentedModel):
    mode: WarmMode = WarmMode.AUTO
    """Auto keeps a process with your imports loaded in each trainer-capable pod, from which workers start in
    milliseconds. It costs its memory, about 280 MB with torch. Off starts every worker from cold."""
    modules: tuple[Annotated[str, Field(max_length=256)], ...] = Field(default=(), max_length=64)
    """Modules to load besides those the training script imports at its top level."""


class TrainerRole(DocumentedModel):
    replicas: int = Field(default=1, ge=1, le=10_000)
    """Number of trainer pods. All ranks restart together; only the pods that failed are replaced."""
    processes_per_pod: int = Field(default=1, ge=1, le=64)
    """Training processes (ranks) in each pod, usually one for each GPU."""
    parallelism: Parallelism = Parallelism()
    """How the model is split. It is checked against the number of processes; the training script carries it out."""
    warm_worker: WarmWorker = WarmWorker()
    """The warm worker kept in each trainer and rollout pod."""
    template: PodTemplate
    """The trainer pods. The first container's command is the training script."""


class Engine(DocumentedModel):
    type: EngineType = EngineType.EMBEDDED
    """The inference engine. Embedded is a small torch server for tests and examples; it speaks SGLang's HTTP
    surface. Custom is any server of yours that speaks that surface."""
    model: str = Field(default="", max_length=256)
    """Embedded: the model's factory, MODULE:FUNCTION. SGLang and VLLM: the model's path in the image."""
    command: tuple[Word, ...] = Field(default=(), max_length=64)
    """The engine's command, instead of the type's own. Required for Custom."""
    port: Port = 8100
    """Port of the engine's HTTP surface."""


class RolloutRole(DocumentedModel):
    replicas: int = Field(default=1, ge=0, le=10_000)
    """Number of rollout pods. `kubectl scale` changes it."""
    min_replicas: int = Field(default=1, ge=0, le=10_000)
    """Rollout pods that are never borrowed as trainers."""
    engine: Engine
    """The inference engine in each rollout pod."""
    template: PodTemplate | None = None
    """The rollout pods. Left out: the trainer's template, which is what lets a rollout become a trainer."""


class ManagerRole(DocumentedModel):
    replicas: int = Field(default=1, ge=1, le=1)
    """Number of manager pods."""
    port: Port = 8300
    """Port of the managers' HTTP surface."""
    ledger: str = Field(min_length=1, max_length=1024, pattern=r"^/")
    """Absolute path of the ledger file, on a volume that outlives the pod."""
    template: PodTemplate
    """The manager pods. Their first container needs no command: it runs the managers."""


class ServiceRole(DocumentedModel):
    name: Name
    """Name of the service, unique in the job."""
    replicas: int = Field(default=1, ge=0, le=1000)
    """Number of pods."""
    template: PodTemplate
    """The service's pods: a reward model, a sandbox. They are restarted alone."""


class Data(DocumentedModel):
    prompts: FunctionPath
    """MODULE:FUNCTION that maps an index to a prompt. The same index always gives the same prompt."""
    rollout: FunctionPath
    """MODULE:FUNCTION, an async function that takes (prompt, episode), plays the turns, returns the reward."""
    prompts_per_step: int = Field(default=32, ge=1, le=65_536)
    """Prompts in the batch of one step."""
    samples_per_prompt: int = Field(default=16, ge=1, le=1024)
    """Trajectories sampled for each prompt: the group whose rewards are compared."""
    concurrency: int = Field(default=64, ge=1, le=65_536)
    """Trajectories in flight at once."""
    turn_timeout_seconds: Seconds = 30
    """A turn that takes longer is done again on another engine."""
    episode_timeout_seconds: Seconds = 600
    """A trajectory that takes longer is given up and another prompt takes its place."""
    keep_batches: int = Field(default=5, ge=5, le=100_000_000)
    """Steps whose trajectories stay in the ledger after they were trained on. No rollback and no replay of the audit
    reaches further back; as many as there are steps keeps them all."""


class Standby(DocumentedModel):
    mode: StandbyMode = StandbyMode.AUTO
    """Auto lets a rollout pod take a lost trainer's place. Off waits for a new trainer pod."""
    reserve: int | None = Field(default=None, ge=0, le=10_000)
    """Rollout pods that keep a warm worker loaded, and so become trainers in the shortest time. Left out: the largest
    of the parallel sizes, so that one whole parallel group can be replaced (paper section 5.1.3)."""


class Backoff(DocumentedModel):
    base_delay_seconds: int = Field(default=5, ge=0, le=3600)
    """Delay before the second restart in a row; it doubles from there. The first restart is immediate, and so is
    every one after the loss of a machine."""
    max_delay_seconds: int = Field(default=600, ge=1, le=86_400)
    """Largest delay between restarts."""
    stable_seconds: int = Field(default=10, ge=1, le=86_400)
    """Trainers that have run for so long since their restart, and made a step, are stable: the next restart is
    immediate again."""


class Budgets(DocumentedModel):
    restarts_without_progress: int = Field(default=3, ge=1, le=100)
    """Restarts in a row that make no training step before the job is Failed with a diagnosis."""
    job_restarts: int = Field(default=10, ge=0, le=10_000)
    """Restarts of the whole job before it is Failed."""


class Suspicion(DocumentedModel):
    faults: int = Field(default=3, ge=1, le=1000)
    """Faults on one node that make it a suspect: new pods go elsewhere if they can."""
    forget_seconds: int = Field(default=3600, ge=1, le=2_592_000)
    """A node without a further fault for so long is no suspect any more."""


class Recovery(DocumentedModel):
    strategy: Strategy = Strategy.ROLE_BASED
    """RoleBased restarts the role that failed, and the whole job only where that cannot help: after a fault of the
    training process in its first step, a second one in the same step, or a second failed restart. WholeJob restarts
    everything at every fault, as most frameworks do; keep it for comparison."""
    standby: Standby = Standby()
    """Whether rollouts stand by for trainers."""
    backoff: Backoff = Backoff()
    """Delays between restarts that make no progress."""
    budgets: Budgets = Budgets()
    """When to give up."""
    suspicion: Suspicion = Suspicion()
    """When a node is avoided."""


class TrainerDetection(DocumentedModel):
    idle_seconds: Seconds = 300
    """A trainer idle for so long in phase Train hangs. The deadline may be shorter: see learnedMultiple."""
    active_permille: int = Field(default=20, ge=1, le=1000)
    """Below this share (of a core, or of the tensor units' cycles where there is a GPU) a trainer counts as idle."""
    phase_lease_seconds: Seconds = 900
    """The longest that any other phase may last, such as Restore or Checkpoint. Waiting for a batch has no limit.
    Outside of any phase: the longest that all trainers may sleep."""
    learned_multiple: int = Field(default=10, ge=2, le=1000)
    """Once the job has shown how long its phases take, the deadlines are so many times that, within
    learnedFloorSeconds and the fields above."""
    learned_floor_seconds: Seconds = 180
    """The shortest that a learned deadline may be: longer than the longest rare wait inside a phase, such as a call to
    a tool."""


class RolloutDetection(DocumentedModel):
    zero_throughput_seconds: Seconds = 60
    """An engine that has requests and makes no token for so long, does not take new weights, or is stopped by a signal,
    is probed; without an answer it hangs. See detection.startupSeconds for one that is not ready yet."""
    phase_lease_seconds: Seconds = 600
    """The longest that applying new weights may take."""


class ManagerDetection(DocumentedModel):
    unanswered_seconds: Seconds = 30
    """Managers that answer nobody for so long are probed; without an answer they hang."""


class Detection(DocumentedModel):
    heartbeat_seconds: int = Field(default=1, ge=1, le=300)
    """Longest time between two reports of an agent."""
    lost_after_missed: int = Field(default=3, ge=2, le=100)
    """Heartbeats missed before a silent pod is probed and, if it does not answer, taken for lost."""
    startup_seconds: Seconds = 600
    """A pod that has not reported this long after its creation has failed. An engine that is not ready and has used no
    processor and read nothing for so long is probed, and so are managers that have not answered anybody yet; without an
    answer they hang. An engine that still loads its model is left be, however long that takes."""
    probe_seconds: int = Field(default=5, ge=1, le=600)
    """How long a process under suspicion may take to show that it works. It is asked so long before the time is over
    for which it may stand still, or after half of that time where that is later."""
    trainer: TrainerDetection = TrainerDetection()
    """When a trainer's process hangs."""
    rollout: RolloutDetection = RolloutDetection()
    """When an engine hangs."""
    manager: ManagerDetection = ManagerDetection()
    """When the managers hang."""


class CheckpointStorage(DocumentedModel):
    path: str = Field(min_length=1, max_length=1024, pattern=r"^/")
    """Absolute path of a folder that all trainer-capable pods can write, on a volume that outlives them."""


class Checkpoint(DocumentedModel):
    """A checkpoint is made after every step: what is not committed with one would be lost by a fault."""

    storage: CheckpointStorage | None = None
    """Where checkpoints go in the background, beside the copies in the trainers' memory."""
    peer_copy: PeerCopy = PeerCopy.AUTO
    """Auto keeps a copy of each trainer's newest checkpoints in the memory of a pod on another node, a rollout where
    there is one, so that they survive the trainers. Off saves the traffic and the memory."""
    keep: int = Field(default=5, ge=1, le=1000)
    """Checkpoints kept in storage."""
    memory_mebibytes: int = Field(default=1024, ge=16, le=4_194_304)
    """Size of each pod's memory-backed volume for checkpoints and weights, in MiB."""


class WeightSync(DocumentedModel):
    port: Port = 8400
    """Port on which a pod hands weights to its neighbours."""
    chunk_mebibytes: int = Field(default=4, ge=1, le=64)
    """Size of a chunk in MiB. Small models use smaller chunks, so that there are enough to share."""


class FaultInjection(DocumentedModel):
    mode: InjectionMode = InjectionMode.OFF
    """Allowed lets whoever may change this RLJob make parts of it fail on purpose, with `robustrl inject`."""


class RLJobSpec(DocumentedModel):
    """An RL post-training job: trainers, rollouts and managers, and how faults in them are handled."""

    steps: int = Field(ge=1, le=100_000_000)
    """Optimizer steps to make."""
    seed: int = Field(default=0, ge=0, le=2_147_483_647)
    """Seed of everything random in the job."""
    mode: Mode = Mode.ASYNC
    """Async: trainers and rollouts work side by side. Sync: they take turns."""
    max_staleness: int = Field(default=4, ge=0, le=1024)
    """How many steps older than the trainers' weights a trajectory may be when it is trained on."""
    trainer: TrainerRole
    """The role that updates the weights."""
    rollout: RolloutRole
    """The role that generates trajectories."""
    manager: ManagerRole
    """The role that routes requests and keeps the ledger. It needs no accelerator."""
    services: tuple[ServiceRole, ...] = Field(default=(), max_length=32)
    """Other pods of the job, such as reward models and sandboxes."""
    data: Data
    """Prompts, the rollout function and the batch."""
    recovery: Recovery = Recovery()
    """What is done about a fault."""
    detection: Detection = Detection()
    """What counts as a fault."""
    checkpoint: Checkpoint = Checkpoint()
    """Checkpoints in memory and storage."""
    weight_sync: WeightSync = WeightSync()
    """How new weights reach the rollouts."""
    fault_injection: FaultInjection = FaultInjection()
    """Whether faults may be made on purpose."""
    suspend: bool = False
    """True takes all pods away and keeps ledger and checkpoints; false goes on from there."""
    managed_by: str = Field(default=CONTROLLER, max_length=63)
    """The controller that acts on this job. Others ignore it."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=31_536_000)
    """Seconds after its end that the RLJob is deleted. Left out: never."""
