"""`robustrl-operator`: brings the Kubernetes body up and keeps it up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import kopf
from aiohttp import web
from lightkube import AsyncClient, operators
from lightkube.resources.core_v1 import Node, Pod
from prometheus_client import CollectorRegistry, generate_latest

from robustrl_api.names import LABEL_JOB
from robustrl_operator.control.server import NodeAgents, control_app
from robustrl_operator.kubernetes import certificates, handlers
from robustrl_operator.kubernetes.body import KubernetesBody, key_of
from robustrl_operator.kubernetes.identity import TokenAuthenticator
from robustrl_operator.kubernetes.informer import Informer
from robustrl_operator.kubernetes.jobs import Jobs
from robustrl_operator.kubernetes.leader_label import stand_in_front
from robustrl_operator.kubernetes.lease import Elector
from robustrl_operator.kubernetes.metrics import OperatorCollector
from robustrl_operator.kubernetes.resources import FIELD_MANAGER
from robustrl_operator.kubernetes.settings import Settings

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
    asyncio.run(Operator(settings).run())


class Operator:
    """The parts and their order."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = AsyncClient(field_manager=FIELD_MANAGER)
        self._jobs = Jobs(lambda: datetime.now(UTC))
        self._elector = Elector(self._client, settings.namespace, settings.pod)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Bring everything up, then wait for the first part that ends: none should."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        pair = await certificates.ensure(self._client, self._settings)
        if self._settings.node_agents:
            # They run here, where there may never be a job.
            await certificates.hand_out(self._client, self._settings.namespace, pair.ca)
        body = KubernetesBody(self._client, self._settings.control_url, pair.ca, lambda: datetime.now(UTC))
        self._jobs.attach(body)
        self._watch(body)
        servers = [await self._serve_http(body)]
        tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in self._parts(body, pair).items()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._close(tasks, servers)

    def _watch(self, body: KubernetesBody) -> None:
        namespace = self._settings.watch_namespace or "*"
        body.pod_informer = Informer(
            self._client,
            Pod,
            lambda pod: self._jobs.wake(key_of(pod)),
            namespace=namespace,
            labels={LABEL_JOB: operators.exists()},
        )
        body.node_informer = Informer(self._client, Node, lambda _node: self._jobs.wake_all())

    def _parts(self, body: KubernetesBody, pair: certificates.Certificates) -> dict[str, Any]:
        assert body.pod_informer is not None
        assert body.node_informer is not None
        return {
            "pods": body.pod_informer.run(),
            "nodes": body.node_informer.run(),
            "lead": self._lead(body, pair),
            "stop": self._stop.wait(),
        }

    async def _lead(self, body: KubernetesBody, pair: certificates.Certificates) -> None:
        """Wait for the lease with everything watched already, then act for as long as it is held."""
        await self._elector.lead()
        control = await self._serve_control(pair)
        kopf_task = asyncio.create_task(self._kopf(body), name="kopf")
        keep = asyncio.create_task(self._elector.keep(), name="lease")
        try:
            await stand_in_front(self._client, self._settings.namespace, self._settings.pod)
            done, _ = await asyncio.wait({kopf_task, keep}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (kopf_task, keep):
                task.cancel()
            await asyncio.gather(kopf_task, keep, return_exceptions=True)
            await control.cleanup()

    async def _kopf(self, body: KubernetesBody) -> None:
        """RLJobs are looked at only once pods are known: a job without its pods would look like a disaster."""
        assert body.pod_informer is not None
        assert body.node_informer is not None
        await body.pod_informer.synced.wait()
        await body.node_informer.synced.wait()
        namespace = self._settings.watch_namespace
        await kopf.operator(
            registry=handlers.registry(self._jobs),
            settings=handlers.settings(),
            clusterwide=not namespace,
            namespaces=[namespace] if namespace else [],
            stop_flag=self._stop,
            # kopf would ask for the user's name, and an arbitrary UID has none.
            identity=FIELD_MANAGER,
        )

    async def _serve_control(self, pair: certificates.Certificates) -> web.AppRunner:
        namespace, account = self._settings.namespace, self._settings.node_agents
        node_agents = NodeAgents(namespace, account) if account else None
        app = control_app(self._jobs.hub, TokenAuthenticator(self._client), node_agents)
        return await _listen(app, self._settings.control_port, pair)

    async def _serve_http(self, body: KubernetesBody) -> web.AppRunner:
        registry = CollectorRegistry()
        registry.register(OperatorCollector(self._jobs, body))
        app = web.Application()
        app.router.add_get("/metrics", lambda _request: _text(generate_latest(registry)))
        app.router.add_get("/healthz", lambda _request: _health(body))
        app.router.add_get("/v1/incidents", lambda _request: _json(self._jobs.incidents))
        app.router.add_get("/v1/jobs", lambda _request: _json(self._jobs.overview))
        return await _listen(app, self._settings.http_port)

    async def _close(self, tasks: list[asyncio.Task[Any]], servers: list[web.AppRunner]) -> None:
        # Nobody else may act before this operator has stopped acting, and nobody shall wait for the rest.
        await self._jobs.close()
        await self._elector.release()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in servers:
            with contextlib.suppress(Exception):
                await server.cleanup()


async def _listen(app: web.Application, port: int, pair: certificates.Certificates | None = None) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=pair.context() if pair else None).start()
    return runner


async def _text(data: bytes) -> web.Response:
    return web.Response(body=data, content_type="text/plain")


async def _json(view: Callable[[], object]) -> web.Response:
    return web.json_response(view())


async def _health(body: KubernetesBody) -> web.Response:
    """Alive means: heard from the API server lately, not merely running."""
    ages = [informer.age_seconds for informer in (body.pod_informer, body.node_informer) if informer is not None]
    stalled = max(ages) > STALLED_SECONDS
    return web.json_response({"watchAgeSeconds": max(ages)}, status=503 if stalled else 200)


if __name__ == "__main__":
    main()
