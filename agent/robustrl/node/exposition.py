"""dcgm-exporter's page, read into one reading per GPU or MIG instance. Pure.

What is not a number that can be, is taken for absent: a card without profiling counters, a field the driver does not
support and a NaN all say the same, nothing. Spellings changed over the exporter's releases (`Hostname` and `hostname`,
`UUID` and `uuid`), and a Prometheus between us and it renames the labels of pods (`exported_pod`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from robustrl_api.errors import describe

PREFIX = "DCGM_FI_"
STARTED = "process_start_time_seconds"
MAX_WATTS, MAX_CELSIUS, MAX_XID = 100_000.0, 1_000.0, 65_535
MAX_GPU, MAX_INSTANCE = 128, 16
"""Characters, as many as a report may hold; a UUID has 40."""

Labels = Mapping[str, str]


class BadExposition(Exception):
    """The page is not, or not wholly, what an exporter writes."""


@dataclass(frozen=True, slots=True, order=True)
class PodName:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A GPU or MIG instance at one moment. None is what the page does not tell."""

    gpu: str
    """UUID of the GPU, the same for all its instances."""
    instance: str = ""
    """MIG: ID of the GPU instance."""
    pods: frozenset[PodName] = frozenset()
    """Who holds it; several where it is shared, none where nobody does or the exporter does not know."""
    tensor_permille: float | None = None
    """Cycles in which the tensor units worked."""
    engine_permille: float | None = None
    """Time in which any kernel was on the GPU, working or not."""
    memory_permille: float | None = None
    """Cycles in which data moved to or from the GPU's memory."""
    utilization_permille: float | None = None
    """The driver's own figure of the engine's time, from another source than the three before."""
    power_watts: float | None = None
    temperature_celsius: float | None = None
    xid: int | None = None
    """The last XID. It stays until the exporter is restarted."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one scrape says."""

    gpus: tuple[GpuReading, ...]
    host: str = ""
    """The machine that the exporter says it is on."""
    started: float | None = None
    """When the exporter's process began, where it tells."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    read: Callable[[float], float | int | None]


def _bounded(low: float, high: float, scale: float = 1.0) -> Callable[[float], float | None]:
    return lambda value: value * scale if low <= value <= high else None


def _whole(value: float) -> int | None:
    return int(value) if 0 <= value <= MAX_XID and value == int(value) else None


FIELDS: Mapping[str, _Field] = {
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _Field("tensor_permille", _bounded(0, 1, 1000)),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _Field("engine_permille", _bounded(0, 1, 1000)),
    "DCGM_FI_PROF_DRAM_ACTIVE": _Field("memory_permille", _bounded(0, 1, 1000)),
    "DCGM_FI_DEV_GPU_UTIL": _Field("utilization_permille", _bounded(0, 100, 10)),
    "DCGM_FI_DEV_POWER_USAGE": _Field("power_watts", _bounded(0, MAX_WATTS)),
    "DCGM_FI_DEV_GPU_TEMP": _Field("temperature_celsius", _bounded(0, MAX_CELSIUS)),
    "DCGM_FI_DEV_XID_ERRORS": _Field("xid", _whole),
}


@dataclass
class _Gathered:
    """A page in the making."""

    gpus: dict[tuple[str, str], GpuReading] = field(default_factory=dict)
    host: str = ""
    started: float | None = None


def parse(text: str) -> Page:
    """Read a page.

    Raises:
        BadExposition: it ends in the middle of a line, or a line is none of the format's.
    """
    if text and not text.endswith("\n"):
        raise BadExposition(f"the page ends in the middle of a line: {text[-80:]!r}")
    gathered = _Gathered()
    for sample in _samples(text):
        if sample.name == STARTED:
            gathered.started = sample.value if math.isfinite(sample.value) else None
        elif sample.name.startswith(PREFIX):
            _gather(gathered, sample)
    return Page(tuple(gathered.gpus[key] for key in sorted(gathered.gpus)), gathered.host, gathered.started)


def _samples(text: str) -> Iterable[Sample]:
    """The page's samples. The parser says what it cannot read by whatever exception its own code meets."""
    try:
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except Exception as error:
        raise BadExposition(f"not the text of an exporter: {describe(error)}"[:300]) from error


def _gather(page: _Gathered, sample: Sample) -> None:
    labels = sample.labels
    gpu, instance = _first(labels, "UUID", "uuid"), labels.get("GPU_I_ID", "")
    if not gpu or len(gpu) > MAX_GPU or len(instance) > MAX_INSTANCE:
        # Such as the links between GPUs, which have labels of their own.
        return
    page.host = page.host or _first(labels, "hostname", "Hostname")
    key = (gpu, instance)
    reading = page.gpus.get(key) or GpuReading(*key)
    pod = _pod(labels)
    if pod is not None:
        reading = replace(reading, pods=reading.pods | {pod})
    known = FIELDS.get(sample.name)
    if known is not None and math.isfinite(sample.value):
        change: dict[str, Any] = {known.name: known.read(sample.value)}
        reading = replace(reading, **change)
    page.gpus[key] = reading


def _pod(labels: Labels) -> PodName | None:
    """The pod that holds the GPU. Where Prometheus renamed labels, `pod` is the exporter's own."""
    prefix = "exported_" if "exported_pod" in labels else ""
    name = labels.get(f"{prefix}pod") or labels.get("pod_name", "")
    namespace = labels.get(f"{prefix}namespace") or labels.get("pod_namespace", "")
    return PodName(namespace, name) if name and namespace else None


def _first(labels: Labels, *names: str) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
