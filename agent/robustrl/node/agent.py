"""The node agent: looks at the node every few seconds, and tells the operator about the job pods on it.

Looking and telling are two tasks. While the operator is away the agent goes on looking, since idle times need an
unbroken row of samples; while the exporter is away it goes on telling, so that the operator knows why it hears nothing.
Both try again with bounded, jittered delays, and say so in the log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

import aiohttp

from robustrl.node.exposition import Page
from robustrl.node.gpu_watch import GpuWatch
from robustrl.node.process_activity import ProcessActivity
from robustrl.node.scrape import ExporterGone, ScrapeFailed, scrape
from robustrl.node.settings import Settings
from robustrl_api.errors import describe
from robustrl_api.node import REPORT_INTERVAL_SECONDS, NodeAssignment, NodeReport, PodReading, WatchedPod
from robustrl_api.skew import read_message

log = logging.getLogger(__name__)

POST_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 60.0
MAX_PODS = 256
"""As many as a report may hold; a node runs no more pods with accelerators."""
LOGGED_FAILURES = frozenset({1, 10, 100, 1000})


class NodeAgent:
    """One node's.

    Args:
        clock: monotonic seconds.
        interval_seconds: between two looks, until the operator says another.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        interval_seconds: float = REPORT_INTERVAL_SECONDS,
    ) -> None:
        self._settings = settings
        self._interval = interval_seconds
        self._gpus = GpuWatch(clock, settings.xids)
        self._processes = ProcessActivity(settings.cgroup_root, clock) if settings.cgroup_root else None
        self._watched: tuple[WatchedPod, ...] = ()
        self._report = NodeReport(node=settings.node)
        self._looked = asyncio.Event()
        self._scrape_failures = self._post_failures = 0
        self._host = ""

    async def run(self) -> None:
        """Look and tell until cancelled; the end of one task ends the other."""
        async with (
            self._settings.access.session() as control,
            aiohttp.ClientSession() as exporter,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(self._look(exporter), name="look")
            tasks.create_task(self._tell(control), name="tell")

    # Looking.

    async def _look(self, session: aiohttp.ClientSession) -> None:
        """Scrapes come more and more seldom while they fail; the pods' processor time is looked at all the same."""
        seconds, problem, due = asyncio.get_running_loop().time, "", 0.0
        while True:
            if self._settings.exporter_url and seconds() >= due:
                problem = await self._scrape(session)
                failures = self._scrape_failures
                due = seconds() + _delay(self._interval, failures) if failures else 0.0
            self._report = NodeReport(node=self._settings.node, problem=problem[:500], pods=await self._readings())
            self._looked.set()
            await asyncio.sleep(_delay(self._interval, 0))

    async def _scrape(self, session: aiohttp.ClientSession) -> str:
        """Take the exporter's page; otherwise why there is none."""
        try:
            page = await scrape(session, self._settings.exporter_url)
        except (ExporterGone, ScrapeFailed) as error:
            self._scrape_failures += 1
            if isinstance(error, ExporterGone):
                self._gpus.exporter_gone()
            if self._scrape_failures in LOGGED_FAILURES:
                log.warning("nothing known of the GPUs, try %d: %s", self._scrape_failures, error)
            return str(error)
        if self._scrape_failures or not self._host:
            self._greet(page)
        self._scrape_failures = 0
        self._gpus.take(page)
        return ""

    def _greet(self, page: Page) -> None:
        """Log whose page it is. One of another machine is harmless, and of no use: none of its pods is here."""
        self._host = page.host or "an unnamed host"
        held = sum(1 for gpu in page.gpus if gpu.pods)
        log.info("the exporter of %s shows %d GPUs, %d of them held by pods", self._host, len(page.gpus), held)
        if page.host and page.host != self._settings.node:
            log.warning("the exporter calls its host %s and this node is %s", page.host, self._settings.node)

    async def _readings(self) -> tuple[PodReading, ...]:
        """Of each watched pod what its GPUs show; its processor time where it holds none, or none is seen."""
        watched = self._watched
        found: dict[str, PodReading] = {}
        if self._processes is not None:
            found |= await asyncio.to_thread(self._processes.readings, watched)
        for uid, reading in self._gpus.readings(watched).items():
            unseen = not reading.devices and uid in found
            if unseen:
                reading = found[uid].model_copy(update={"xids": reading.xids, "as_if": reading.as_if})
            found[uid] = reading
        return tuple(found.values())[:MAX_PODS]

    # Telling.

    async def _tell(self, session: aiohttp.ClientSession) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            assignment = await self._post(session)
            if assignment is None:
                # What was not heard is told again before the next look.
                await asyncio.sleep(_delay(1.0, self._post_failures))
                self._looked.set()
                continue
            self._interval, self._watched = assignment.interval_seconds, assignment.pods
            self._gpus.watch(assignment.pods)

    async def _post(self, session: aiohttp.ClientSession) -> NodeAssignment | None:
        """One report; None where it was not taken."""
        try:
            async with session.post(
                f"{self._settings.access.url}/v1/node",
                data=self._report.model_dump_json(by_alias=True),
                headers=self._settings.access.headers(),
                ssl=self._settings.access.tls(),
                timeout=aiohttp.ClientTimeout(total=POST_SECONDS),
            ) as response:
                text = await response.text()
                if response.status == 200:
                    assignment = read_message(NodeAssignment, text)
                    self._post_failures = 0
                    return assignment
                self._note_failure(f"{response.status} {text[:300]}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._note_failure(describe(error))
        return None

    def _note_failure(self, why: str) -> None:
        self._post_failures += 1
        if self._post_failures in LOGGED_FAILURES:
            log.warning("the operator did not take the report, try %d: %s", self._post_failures, why)


def _delay(seconds: float, failures: int) -> float:
    """Twice as long with each failure in a row, up to a minute; spread, so that nodes do not call in step."""
    stretched = seconds if failures == 0 else min(MAX_BACKOFF_SECONDS, seconds * 2 ** min(failures - 1, 10))
    return max(seconds, stretched) * random.uniform(0.9, 1.1)
