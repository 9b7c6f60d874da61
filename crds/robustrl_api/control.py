"""The control channel's messages: what an agent reports, what it is assigned.

The agent calls, the operator never does. One long-poll: the agent posts an AgentReport, the answer carries its
Assignment; the operator holds the call while nothing has changed, up to the heartbeat interval.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from robustrl_api.base import ApiModel, Duration
from robustrl_api.names import Role

PHASE_CHARACTERS, MESSAGE_CHARACTERS = 63, 4000
"""As many as a report has room for, of a phase's name and of what a process said last."""
TRAIN = "Train"
"""The phase of a trainer in which an accelerator that idles means that something is wrong."""
IDLE = "idle"
"""Under this name `Activity.shown` has the longest standstill that ended by itself."""
LEAVE_MARGIN_SECONDS = 4.0
"""Of a pod's grace period, kept for the checkpoint's way to storage and for ending its processes: whoever has not
handed over by then does not any more."""


class Harm(StrEnum):
    """What an agent can do, on request, to the process under its care or to itself."""

    KILL = "Kill"
    """SIGKILL."""
    STOP = "Stop"
    """SIGSTOP: the process hangs."""
    STOP_BELOW = "StopBelow"
    """SIGSTOP for every process that it started: it answers, and what it stands in front of hangs."""
    INTERRUPT = "Interrupt"
    """SIGINT: in a Python process an exception, wherever it is just now."""
    STARVE = "Starve"
    """The process gets no more memory."""
    SLOW = "Slow"
    """The process gets a small share of the processor for a while."""
    KILL_AGENT = "KillAgent"
    """The agent ends at once, and everything in its container with it."""
    FALL_SILENT = "FallSilent"
    """Everything in the container stands still, the agent with it, for as long as there is the pod: nobody outside can
    tell it from one whose machine has lost power."""
    STAND_STILL = "StandStill"
    """The same for a while; then all goes on as if nothing had happened."""
    CUT_OFF = "CutOff"
    """The same for a longer while: a node that cannot be reached for a minute comes to the same for everybody else."""
    STORAGE_FULL = "StorageFull"
    """For some seconds nothing that the agent writes to storage finds room, as it believes."""
    STORAGE_READ_ONLY = "StorageReadOnly"
    """The same, for a volume that nobody can write to."""
    LOSE_CHECKPOINT = "LoseCheckpoint"
    """SIGKILL; and of the checkpoint that is restored next, the agent believes, no good copy is left anywhere."""


class Strike(ApiModel):
    """A fault that an agent shall make, once."""

    id: str = Field(max_length=63)
    harm: str = Field(max_length=63)
    """A `Harm`. An agent that does not know the word, as an older one may not, says so."""


class Struck(ApiModel):
    """A strike that an agent has carried out, or could not."""

    id: str = Field(max_length=63)
    error: str = Field(default="", max_length=500)
    """Why nothing was struck."""


class ChildState(StrEnum):
    """What the process under the agent's care is doing."""

    NONE = "None"
    STARTING = "Starting"
    RUNNING = "Running"
    EXITED = "Exited"


class Exit(ApiModel):
    """How a child ended."""

    code: int = 0
    """Exit status; negative for the signal that ended it."""
    peer_lost: bool = False
    """The process gave up because another rank was gone: a consequence of a fault, not a fault."""
    message: str = Field(default="", max_length=MESSAGE_CHARACTERS)
    """The exception, or the last lines the process printed."""
    life: str = Field(default="", max_length=64)
    """Which process it was (engines and managers)."""
    handed_over: bool = False
    """The workers ended after a commit because others shall go on from it."""
    agent_restarted: bool = False
    """The agent ended as well, and with it all that was loaded in the pod (trainers)."""
    requested: bool = False
    """The agent ended it because its assignment said so: what was wrong with it is on record already."""


class Child(ApiModel):
    state: ChildState = ChildState.NONE
    epoch: int = 0
    """The epoch that the child was started for."""
    restarts: int = Field(default=0, ge=0)
    """Restarts in place that the agent made by itself (engines and managers)."""
    last_exit: Exit | None = None
    life: str = Field(default="", max_length=64)
    """Identifies this process among all that the pod ever runs (engines and managers)."""


class Activity(ApiModel):
    """How the pod's work goes on, by the pod's own clock: no other machine's clock enters it."""

    phase_seconds: Duration = 0.0
    """How long the phase has lasted."""
    idle_seconds: Duration = 0.0
    """How long the work has stood still though there is some. Zero where there is nothing to do."""
    idle_text: str = Field(default="", max_length=500)
    """What stands still, for a person."""
    asleep_seconds: Duration = 0.0
    """How long all processes have slept where nothing is known of the work: of a trainer outside of any phase; of an
    engine as it starts, where it has read nothing either."""
    trained: int = Field(default=0, ge=0)
    """How often phase Train was entered since the last commit, or since the restore. Who is in it has entered it; zero
    is also what an agent says that does not count."""
    shown: dict[str, Duration] = Field(default_factory=dict, max_length=32)
    """The longest that each phase has lasted here and then ended well, in seconds, of those that are well known;
    and under "idle", the longest that work stood still and then went on by itself."""


UNKILLABLE = "ProcessUnkillable"
"""A complaint's reason: whoever it is that the process belongs to, it is the machine's fault."""


class Complaint(ApiModel):
    """Something the agent found that no restart can mend."""

    reason: str = Field(max_length=63)
    message: str = Field(max_length=MESSAGE_CHARACTERS)


class AgentReport(ApiModel):
    """What an agent says of its pod."""

    pod: str = Field(max_length=253)
    boot: str = Field(max_length=64)
    """Identifies this run of the agent; another value means that it was restarted."""
    epoch: int = 0
    """The epoch of the last assignment that the agent carried out."""
    role: Role
    """The role that the agent plays."""
    applied: str = Field(default="", max_length=64)
    """Etag of the last assignment received."""
    phase: str = Field(default="", max_length=PHASE_CHARACTERS)
    """The training script's phase."""
    step: int = Field(default=0, ge=0)
    """Optimizer steps committed, as this pod knows."""
    version: str = Field(default="", max_length=64)
    """The weight version that the engine serves."""
    admitted: bool = False
    """Whether the managers send this pod's engine requests."""
    child: Child = Child()
    activity: Activity = Activity()
    leaving: bool = False
    """The pod was told to end and uses what is left of its grace period to hand over."""
    complaint: Complaint | None = None
    unstored: str = Field(default="", max_length=1000)
    """Why this pod cannot write checkpoints to storage; empty while it can, or has no need to."""
    struck: Struck | None = None
    """The last strike that was carried out here, by this agent or one before it."""
    metrics: dict[str, float] = Field(default_factory=dict, max_length=64)
    """Counters and gauges of the pod, for people and dashboards; no rule reads them."""


class Peer(ApiModel):
    """A pod of the same job, as another one addresses it."""

    pod: str
    role: Role
    address: str
    """IP address."""
    rank: int = -1
    agent_port: int = 8200


class Assignment(ApiModel):
    """What an agent shall be. The operator derives it from status alone, so any operator gives the same one."""

    etag: str = ""
    """Changes exactly when the rest changes."""
    role: Role
    epoch: int = 0
    run: bool = False
    """False: hold still, keep the copies in memory, run no child."""
    rank: int = -1
    """Index of this trainer pod among the trainer pods."""
    world_size: int = 0
    """Number of training processes in all."""
    rendezvous: str = ""
    """HOST:PORT at which the ranks of this epoch meet."""
    manager: str = ""
    """Base URL of the managers. Empty while there are none."""
    peers: tuple[Peer, ...] = ()
    """Every pod of the job that can be reached, this one too; of those that are about to go not the rollouts."""
    phase_lease_seconds: float = 900.0
    """Trainers: the longest that a phase of any of them may last, and so how long the others wait for it."""
    keeper: str = ""
    """Trainers: the peer whose memory keeps copies of this pod's checkpoints."""
    heartbeat_seconds: float = 1.0
    """Longest time until the next report."""
    hand_over: bool = False
    """Trainers: commit the step under way and end, so that others go on from it and nothing is done twice."""
    standby: bool = False
    """A rollout that shall keep a warm worker loaded, to become a trainer in the shortest time."""
    end_life: str = ""
    """The process of this life hangs and shall be ended; its agent then restarts it as after any exit."""
    strike: Strike | None = None
    """A fault to be made on purpose."""

    @property
    def keeper_peer(self) -> Peer | None:
        """The keeper as it is addressed."""
        return next((peer for peer in self.peers if peer.pod == self.keeper), None)
