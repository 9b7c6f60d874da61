"""The node channel's messages: what a node agent has seen of the pods on its node, and which pods it shall look at.

The node agent calls, the operator never does. The answer names the job pods on that node, so nothing of anybody else's
pods leaves the node. Everything is a state and not an event: a report that is lost is made up for by the next one, and
a new operator knows after one report what the one before it knew.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from robustrl_api.base import LONGEST_SECONDS, ApiModel

REPORT_INTERVAL_SECONDS = 10.0
"""Between two reports of a node. dcgm-exporter's own numbers are no younger than its collection interval (30 s)."""
ACTIVE_PERMILLE = 20
"""From this share on something counts as active, where the job does not say."""


class Source(StrEnum):
    """What an idle time was measured by."""

    GPU = "Gpu"
    CPU = "Cpu"


class XidSeverity(StrEnum):
    """What is to be done about an XID."""

    IGNORE = "Ignore"
    APPLICATION = "Application"
    """The process did something wrong or was hit; started again, it may well go on."""
    GPU = "Gpu"
    """The GPU needs a reset, a reboot or a replacement: whoever uses it has to go elsewhere."""


class AsIf(StrEnum):
    """What a node agent can say of a pod on purpose: as if the pod's GPU, or the exporter, were so."""

    OFF_THE_BUS = "OffTheBus"
    """A GPU that the pod holds has fallen off the bus (XID 79), from then on for as long as the pod is watched."""
    ABSENT = "Absent"
    """The exporter does not answer."""
    STUCK = "Stuck"
    """Its profiling counters hang at zero."""
    IDLE = "Idle"
    """It says with one voice that the pod's GPUs idle."""


class Xid(ApiModel):
    """An error that the driver reported of a GPU while the pod held it."""

    code: int = Field(ge=1, le=65_535)
    gpu: str = Field(max_length=128)
    """UUID of the GPU."""
    severity: XidSeverity
    meaning: str = Field(default="", max_length=200)
    age_seconds: float = Field(default=0.0, ge=0, le=LONGEST_SECONDS)
    """How long ago it was first seen."""


class Device(ApiModel):
    """The last numbers of a GPU or MIG instance, for people and dashboards; no rule reads them."""

    gpu: str = Field(max_length=128)
    instance: str = Field(default="", max_length=16)
    """MIG: ID of the GPU instance."""
    tensor_permille: float | None = None
    engine_permille: float | None = None
    memory_permille: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


class PodReading(ApiModel):
    """What a node agent has seen of one pod."""

    uid: str = Field(max_length=64)
    source: Source
    idle_seconds: float = Field(default=0.0, ge=0, le=LONGEST_SECONDS)
    """For how long all that the pod was seen to use has been idle, by the node's clock. Zero where that is not known or
    is contradicted."""
    idle_text: str = Field(default="", max_length=500)
    """What is idle, and what agrees that it is, for a person."""
    doubt: str = Field(default="", max_length=300)
    """Why the numbers are not believed."""
    xids: tuple[Xid, ...] = Field(default=(), max_length=16)
    """Since this pod has held its GPUs, oldest first."""
    devices: tuple[Device, ...] = Field(default=(), max_length=64)
    as_if: str = Field(default="", max_length=63)
    """The word by which it was made on purpose; empty for what was seen."""


class NodeReport(ApiModel):
    """What a node agent says of its node."""

    node: str = Field(max_length=253)
    problem: str = Field(default="", max_length=500)
    """Why nothing can be read at the moment."""
    pods: tuple[PodReading, ...] = Field(default=(), max_length=256)


class WatchedPod(ApiModel):
    """A job's pod that a node agent shall look at."""

    uid: str
    namespace: str
    name: str
    active_permille: int = ACTIVE_PERMILLE
    """Below this share (of the tensor units' cycles, or of a core) the pod counts as idle."""
    as_if: str = Field(default="", max_length=63)
    """What shall be said of it on purpose, an `AsIf`; empty for what is seen. An agent that does not know the field or
    the word reports what it sees, and says so by its readings' `as_if`."""


class NodeAssignment(ApiModel):
    """The answer to a NodeReport."""

    interval_seconds: float
    """Until the next look."""
    pods: tuple[WatchedPod, ...] = ()
