"""Runs one job to its end on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from aiohttp import web

from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.status import RLJobStatus, has_ended
from robustrl_operator.control.detectors import load_detectors
from robustrl_operator.control.hub import ControlHub
from robustrl_operator.control.prober import Prober
from robustrl_operator.control.reconciler import Reconciler
from robustrl_operator.control.server import control_app
from robustrl_operator.faults.kind import Fault, FaultKind
from robustrl_operator.faults.strike import strike
from robustrl_operator.local.body import LocalBody
from robustrl_operator.local.hand import LocalHand
from robustrl_operator.local.network import claimed
from robustrl_operator.local.run_folder import RunFolder
from robustrl_operator.local.storage_harm import NoVolume
from robustrl_operator.report.timeline import PodSample, Sample, Timeline

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 0.25
POLL_SECONDS = 0.02
REQUEST_SECONDS = 0.2


def now() -> datetime:
    """The wall clock; the brain only ever sees what this returned."""
    return datetime.now(UTC)


@dataclass
class LocalRun:
    """A job being run. `async with LocalRun(job, folder).started() as run: await run.until_ended()`."""

    job: RLJob
    folder: Path
    faults: Sequence[Fault] = ()
    timeline: Timeline = field(default_factory=Timeline)
    replay: bool = False

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[LocalRun]:
        """The job's processes live inside the block and are gone after it.

        Raises:
            NoNetwork: too many jobs run on this machine.
        """
        with claimed() as network:
            async with self._at_work(network):
                yield self

    @contextlib.asynccontextmanager
    async def _at_work(self, network: str) -> AsyncIterator[None]:
        memory = Path(tempfile.mkdtemp(prefix="robustrl-", dir=_memory_root()))
        port = _free_port()
        self.body = LocalBody(
            self.job, self.folder, memory, f"http://127.0.0.1:{port}", random.randrange(20_000, 28_000), self._wake,
            network=network, replay=self.replay,
        )  # fmt: skip
        RunFolder(self.folder).describe(self.job, Path.cwd())
        self._hand = LocalHand(self.body, RunFolder(self.folder))
        self.hub = ControlHub(now, lambda _identity: self._wake())
        self._prober = Prober(now, self._wake)
        self.reconciler = Reconciler(self.job.metadata.name, self.body, self.hub, self._prober, now, load_detectors())
        server = await self._serve(port)
        self._tasks = [
            asyncio.create_task(self.reconciler.run(), name="reconcile"),
            asyncio.create_task(self._sample(), name="sample"),
            asyncio.create_task(self._strike(), name="faults"),
            asyncio.create_task(self._take_requests(), name="inject"),
        ]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.body.close()
            await self._prober.close()
            await server.cleanup()
            shutil.rmtree(memory, ignore_errors=True)

    def _wake(self) -> None:
        if hasattr(self, "reconciler"):
            self.reconciler.wake()

    async def _serve(self, port: int) -> web.AppRunner:
        runner = web.AppRunner(control_app(self.hub, self.body), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    @property
    def status(self) -> RLJobStatus:
        job = self.body.job("")
        assert job is not None
        return job.status

    @property
    def step(self) -> int:
        """Steps committed, as the agents report them."""
        heard = (self.hub.heard(pod.uid) for pod in self.body.processes)
        return max((h.report.step for h in heard if h), default=self.status.step)

    def ended(self) -> bool:
        return has_ended(self.status)

    def _check(self) -> None:
        """Nothing comes of waiting for a job of which a part has died here."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def until_ended(self) -> RLJobStatus:
        """Wait for the job's end. What one of the run's own parts died of is raised."""
        while not self.ended():  # sampled, like everything a person looks at
            self._check()
            await asyncio.sleep(SAMPLE_SECONDS)
        return self.status

    async def until_step(self, step: int) -> None:
        """Wait until so many steps are committed, or the job has ended."""
        while self.step < step and not self.ended():  # noqa: ASYNC110 - the step is other processes' news
            await asyncio.sleep(POLL_SECONDS)

    async def _strike(self) -> None:
        for fault in sorted(self.faults, key=lambda fault: fault.step):
            await self.until_step(fault.step)
            if self.ended():
                log.warning("the job ended before fault %s@%d", fault.kind, fault.step)
                return
            try:
                await self.strike(fault.kind)
            except (LookupError, NoVolume) as why:
                log.error("fault %s@%d did not strike: %s", fault.kind, fault.step, why)
                self.timeline.mark(f"{fault.kind} did NOT strike: {why}")

    async def _take_requests(self) -> None:
        """What `robustrl inject` writes while this run lasts."""
        path = RunFolder(self.folder).request
        path.unlink(missing_ok=True)
        text = ""
        while True:
            await asyncio.sleep(REQUEST_SECONDS)
            with contextlib.suppress(OSError):
                if (there := path.read_text(errors="replace")) != text:
                    text = there
                    self.body.ask(text)

    async def strike(self, kind: FaultKind, index: int = -1) -> tuple[str, ...]:
        """Make something fail now; the names of the pods that were hit."""
        pods = await strike(self._hand, kind, index)
        self.timeline.mark(f"{kind} ({', '.join(pods)})")
        return pods

    def mend(self) -> None:
        """End what a fault left that lasts until it is mended."""
        self._hand.mend()

    async def _sample(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session:
            while True:
                self.timeline.add(self._sample_now(await self._progress(session)))
                await asyncio.sleep(SAMPLE_SECONDS)

    async def _progress(self, session: aiohttp.ClientSession) -> dict[str, object]:
        for pod in self.body.playing(Role.MANAGER):
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError):
                async with session.get(f"http://{pod.address}:{self.job.spec.manager.port}/v1/progress") as response:
                    return dict(await response.json())
        return {}

    def _sample_now(self, progress: dict[str, object]) -> Sample:
        members = {m.uid for m in self.status.members}
        pods = []
        for pod in self.body.processes:
            heard = self.hub.heard(pod.uid)
            report = heard.report if heard else None
            role = Role.TRAINER if pod.uid in members else pod.role
            down = pod.deleting or not pod.node_alive
            tokens = report.metrics.get("generation_tokens_total", 0.0) if report else 0.0
            pods.append(PodSample(pod.name, "lost" if down else role.value, tokens, bool(report and report.admitted)))
        reward = progress.get("reward_mean")
        tokens_total = progress.get("tokens_total")
        return Sample(
            step=self.step,
            epoch=self.status.epoch,
            reward=float(reward) if isinstance(reward, int | float) else None,
            tokens_total=float(tokens_total) if isinstance(tokens_total, int | float) else None,
            recovering=self.status.recovery is not None,
            pods=tuple(pods),
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _memory_root() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) and sys.platform == "linux" else None
