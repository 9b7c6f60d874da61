"""A dcgm-exporter for tests: pages in its format, served over HTTP, with every trap that the real one is known for.

The format is that of NVIDIA/dcgm-exporter's render_metrics: one family after the other, HELP and TYPE, labels in a
fixed order, floats with six digits, integers bare. A field that DCGM has no value for has no line at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiohttp import web

TENSOR, ENGINE, MEMORY = (
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
)
UTILIZATION, POWER, TEMPERATURE, XID = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_XID_ERRORS",
)
PROFILING = (TENSOR, ENGINE, MEMORY)
HELP = {
    UTILIZATION: "GPU utilization (in %).",
    TEMPERATURE: "GPU temperature (in C).",
    POWER: "Power draw (in W).",
    XID: "Value of the last XID error encountered.",
    ENGINE: "Ratio of time the graphics engine is active.",
    TENSOR: "Ratio of cycles the tensor (HMMA) pipe is active.",
    MEMORY: "Ratio of cycles the device memory interface is active sending or receiving data.",
}
WHOLE = (UTILIZATION, TEMPERATURE, XID)

WORKING = {UTILIZATION: 99, TEMPERATURE: 61, POWER: 610.0, XID: 0, ENGINE: 0.98, TENSOR: 0.41, MEMORY: 0.35}
HUNG = {UTILIZATION: 100, TEMPERATURE: 44, POWER: 130.0, XID: 0, ENGINE: 1.0, TENSOR: 0.0, MEMORY: 0.001}
"""A collective that waits for a dead peer: its kernel stays on the engine, moves nothing and draws little."""
IDLE = {UTILIZATION: 0, TEMPERATURE: 35, POWER: 75.0, XID: 0, ENGINE: 0.0, TENSOR: 0.0, MEMORY: 0.0}
STUCK = {**WORKING, ENGINE: 0.0, TENSOR: 0.0, MEMORY: 0.0}
"""The profiling counters hang at zero while the GPU works (dcgm-exporter #662)."""


@dataclass
class Gpu:
    """A GPU or MIG instance as the exporter shows it."""

    index: int = 0
    pod: tuple[str, str] | None = None
    """Namespace and name."""
    values: dict[str, float] = field(default_factory=lambda: dict(WORKING))
    instance: str = ""

    @property
    def uuid(self) -> str:
        return f"GPU-{self.index:08d}"


@dataclass
class Style:
    """How releases and surroundings differ."""

    host_label: str = "Hostname"
    uuid_label: str = "UUID"
    prefix: str = ""
    """`exported_` where a Prometheus renamed the labels."""
    empty_labels: bool = False
    """Older releases print empty labels for a GPU of no pod."""
    started: float | None = None


def render(gpus: Iterable[Gpu], style: Style | None = None, host: str = "n1") -> str:
    """The page."""
    style, gpus = style or Style(), list(gpus)
    lines = []
    for name in HELP:
        shown = [gpu for gpu in gpus if name in gpu.values]
        if shown:
            lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{_labels(gpu, style, host)}}} {_value(name, gpu.values[name])}" for gpu in shown]
    if style.started is not None:
        lines += ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {style.started}"]
    return "".join(f"{line}\n" for line in lines)


def _value(name: str, value: float) -> str:
    return f"{value:.0f}" if name in WHOLE else f"{value:f}"


def _labels(gpu: Gpu, style: Style, host: str) -> str:
    labels = [("gpu", str(gpu.index)), (style.uuid_label, gpu.uuid), ("pci_bus_id", f"00000000:{gpu.index:02X}:00.0"),
              ("device", f"nvidia{gpu.index}"), ("modelName", "NVIDIA H100 80GB HBM3")]  # fmt: skip
    if gpu.instance:
        labels += [("GPU_I_PROFILE", "1g.10gb"), ("GPU_I_ID", gpu.instance)]
    labels += [(style.host_label, host), ("DCGM_FI_DRIVER_VERSION", "550.54.15")]
    if style.prefix:
        labels += [("container", "exporter"), ("namespace", "gpu-operator"), ("pod", "dcgm-exporter-x2x2x")]
    if gpu.pod:
        namespace, pod = gpu.pod
        labels += [(f"{style.prefix}container", "main"), (f"{style.prefix}namespace", namespace),
                   (f"{style.prefix}pod", pod)]  # fmt: skip
    elif style.empty_labels:
        labels += [("container", ""), ("namespace", ""), ("pod", "")]
    return ",".join(f'{name}="{value}"' for name, value in labels)


class FakeExporter:
    """Serves `gpus` on loopback. Its fields may be changed at any time."""

    def __init__(self, gpus: Iterable[Gpu] = (), host: str = "n1") -> None:
        self.gpus, self.host, self.style = list(gpus), host, Style()
        self.body: bytes | None = None
        """Served instead of the page."""
        self.status = 200
        self.frozen = False
        """It accepts calls and answers none."""
        self.scrapes = 0
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/metrics"

    async def start(self) -> FakeExporter:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """The exporter is gone; `start` brings it back at the same address."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _request: web.Request) -> web.Response:
        self.scrapes += 1
        while self.frozen:  # noqa: ASYNC110 - until the test lets go
            await asyncio.sleep(0.01)
        body = render(self.gpus, self.style, self.host).encode() if self.body is None else self.body
        return web.Response(body=body, status=self.status, content_type="text/plain")
