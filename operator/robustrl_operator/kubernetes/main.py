"""`robustrl-operator`: brings the Kubernetes body up and keeps it up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import Any

from aiohttp import web
from lightkube import operators
from lightkube.resources.core_v1 import Node, Pod
from prometheus_client import generate_latest

from robustrl_api.names import LABEL_JOB
from robustrl_operator.kubernetes import certificates
from robustrl_operator.kubernetes.api_client import async_client
from robustrl_operator.kubernetes.body import key_of
from robustrl_operator.kubernetes.identity import TokenAuthenticator
from robustrl_operator.kubernetes.informer import Informer
from robustrl_operator.kubernetes.lease import Elector, LeaseLost
from robustrl_operator.kubernetes.listen import listen
from robustrl_operator.kubernetes.settings import Settings
from robustrl_operator.kubernetes.term import Surroundings, Term

log = logging.getLogger(__name__)

STALLED_SECONDS = 90.0
"""An operator that has not heard the API server for so long is restarted by its liveness probe."""


def main() -> None:
    """Run until SIGTERM, or until a part of the operator dies."""
    settings = Settings.from_environment()
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    for noisy in ("httpx", "httpx2", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    await Operator(settings).run()


class Operator:
    """The parts and their order. It watches from its first moment to its last; it acts while it holds the lease."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = async_client()
        self._elector = Elector(self._client, settings.namespace, settings.pod)
        self._pods = Informer(
            self._client,
            Pod,
            lambda pod: self._term.jobs.wake(key_of(pod)),
            namespace=settings.watch_namespace or "*",
            labels={LABEL_JOB: operators.exists()},
        )
        self._nodes = Informer(self._client, Node, lambda _node: self._term.jobs.wake_all())
        self._stop = asyncio.Event()
        self._term: Term

    async def run(self) -> None:
        """Bring everything up, then wait for SIGTERM, or for the first part that ends: none should."""
        self._take_signals()
        pair = await certificates.ensure(self._client, self._settings)
        if self._settings.node_agents:
            # They run here, where there may never be a job.
            await certificates.hand_out(self._client, self._settings.namespace, pair.ca)
        around = self._surroundings(pair)
        self._term = Term(around)
        server = await self._serve_http()
        parts = {
            "pods": self._pods.run(),
            "nodes": self._nodes.run(),
            "lead": self._lead(around),
            "stop": self._stop.wait(),
        }
        tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._close(tasks, server)

    def _take_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)

    def _surroundings(self, pair: certificates.Certificates) -> Surroundings:
        return Surroundings(
            self._client,
            self._settings,
            pair,
            TokenAuthenticator(self._client),
            self._pods,
            self._nodes,
            self._elector.holds,
            lambda: self._elector.predecessor,
            self._take_signals,
        )

    async def _lead(self, around: Surroundings) -> None:
        """Act whenever the lease is held; follow, with everything watched already, while it is another's."""
        while True:
            await self._elector.lead()
            try:
                await self._serve_term()
            except LeaseLost as lost:
                log.warning("%s; it follows until it gets it back", lost)
            self._term = Term(around)

    async def _serve_term(self) -> None:
        """Raises LeaseLost once this operator has stopped acting, and all that it had begun is over."""
        acting = asyncio.create_task(self._term.run(), name="term")
        keeping = asyncio.create_task(self._elector.keep(), name="lease")
        try:
            await asyncio.wait({acting, keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (keeping, acting):
                if task.done():
                    task.result()
        finally:
            self._term.stop()
            for task in (acting, keeping):
                task.cancel()
            await asyncio.gather(acting, keeping, return_exceptions=True)

    async def _serve_http(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/metrics", self._say_metrics)
        app.router.add_get("/healthz", self._say_health)
        app.router.add_get("/v1/incidents", self._say_incidents)
        app.router.add_get("/v1/jobs", self._say_jobs)
        return await listen(app, self._settings.http_port)

    async def _say_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._term.metrics), content_type="text/plain")

    async def _say_health(self, _request: web.Request) -> web.Response:
        """Alive means: heard from the API server lately, not merely running."""
        age = max(informer.age_seconds for informer in (self._pods, self._nodes))
        return web.json_response({"watchAgeSeconds": age}, status=503 if age > STALLED_SECONDS else 200)

    async def _say_incidents(self, _request: web.Request) -> web.Response:
        return web.json_response(self._term.jobs.incidents())

    async def _say_jobs(self, _request: web.Request) -> web.Response:
        return web.json_response(self._term.jobs.overview())

    async def _close(self, tasks: list[asyncio.Task[Any]], server: web.AppRunner) -> None:
        # Nobody else may act before this operator has stopped acting, and nobody shall wait for the rest.
        await self._term.jobs.close()
        await self._elector.release()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await server.cleanup()


if __name__ == "__main__":
    main()
