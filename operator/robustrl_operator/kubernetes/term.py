"""One time of leading: all that an operator begins when it gets the lease, and ends before anybody else may act.

Nothing of it outlives the term. What another leader does meanwhile is not seen by who follows, so the next term begins
with no memory but the informers', which are read anew first; the rest is in the jobs' status, where every leader finds
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
import kopf
from lightkube import ApiError, AsyncClient
from prometheus_client import CollectorRegistry

from robustrl_api.errors import describe
from robustrl_operator.control.server import Authenticator, NodeAgents, control_app
from robustrl_operator.kubernetes import handlers, predecessor
from robustrl_operator.kubernetes.body import KubernetesBody
from robustrl_operator.kubernetes.certificates import Certificates
from robustrl_operator.kubernetes.informer import Informer
from robustrl_operator.kubernetes.jobs import Jobs
from robustrl_operator.kubernetes.leader_label import stand_in_front
from robustrl_operator.kubernetes.lease import Predecessor
from robustrl_operator.kubernetes.listen import listen
from robustrl_operator.kubernetes.metrics import OperatorCollector
from robustrl_operator.kubernetes.resources import FIELD_MANAGER
from robustrl_operator.kubernetes.settings import Settings

log = logging.getLogger(__name__)

LABEL_RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Surroundings:
    """What an operator has whether it leads or not.

    Attributes:
        may_act: whether it holds the lease now.
        predecessor: who let the lease run out before this operator took it.
        take_signals: has the process's signals handled by the operator.
    """

    client: AsyncClient
    settings: Settings
    pair: Certificates
    authenticator: Authenticator
    pods: Informer
    nodes: Informer
    may_act: Callable[[], bool]
    predecessor: Callable[[], Predecessor | None]
    take_signals: Callable[[], None]


class Term:
    """Made ahead of its time: until it is run it knows no job, and what is asked of it is answered so."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        url, ca = around.settings.control_url, around.pair.ca
        self._body = KubernetesBody(around.client, url, ca, _now, around.may_act)
        self._body.pod_informer, self._body.node_informer = around.pods, around.nodes
        self.jobs = Jobs(_now)
        self.jobs.attach(self._body)
        self.metrics = CollectorRegistry()
        self.metrics.register(OperatorCollector(self.jobs, self._body, _now()))

    async def run(self) -> None:
        """Act until cancelled, or until a part of it ends: none should."""
        try:
            # A job without its pods would look like a disaster, and one with those of yesterday like another.
            await asyncio.gather(self._around.pods.renew(), self._around.nodes.renew(), self._look_back())
            async with self._control(), asyncio.TaskGroup() as parts:
                parts.create_task(self._stand_in_front(), name="label")
                parts.create_task(self._kopf(), name="kopf")
        finally:
            await self.jobs.close()

    def stop(self) -> None:
        """Nothing is begun from now on, and what is under way is called back. Its end is that of `run`."""
        self.jobs.stop()

    @contextlib.asynccontextmanager
    async def _control(self) -> AsyncIterator[None]:
        settings = self._around.settings
        account = settings.node_agents
        node_agents = NodeAgents(settings.namespace, account) if account else None
        app = control_app(self.jobs.hub, self._around.authenticator, node_agents)
        runner = await listen(app, settings.control_port, self._around.pair)
        try:
            yield
        finally:
            await runner.cleanup()

    async def _look_back(self) -> None:
        around = self._around
        before = around.predecessor()
        self._body.silent_node = await predecessor.find(around.client, around.settings.namespace, before, _now())

    async def _stand_in_front(self) -> None:
        """Agents find nobody before this is done, so it is tried for as long as the term lasts."""
        settings = self._around.settings
        while True:
            try:
                await stand_in_front(self._around.client, settings.namespace, settings.pod)
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("the leader's label is not set yet: %s", describe(error))
                await asyncio.sleep(LABEL_RETRY_SECONDS)
            else:
                return

    async def _kopf(self) -> None:
        """kopf without its own end, which takes every task of the process with it that is younger than kopf's."""
        # Seen through, whatever becomes of this task: its tasks would belong to nobody.
        spawning = asyncio.create_task(self._spawn_kopf(), name="kopf begins")
        try:
            done, _ = await asyncio.wait(await asyncio.shield(spawning), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            raise RuntimeError(f"kopf ended by itself: {', '.join(task.get_name() for task in done)}")
        finally:
            tasks = await spawning
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _spawn_kopf(self) -> Collection[asyncio.Task[Any]]:
        namespace = self._around.settings.watch_namespace
        tasks: Collection[asyncio.Task[Any]] = await kopf.spawn_tasks(
            registry=handlers.registry(self.jobs),
            settings=handlers.settings(),
            clusterwide=not namespace,
            namespaces=[namespace] if namespace else [],
            # kopf would ask for the user's name, and an arbitrary UID has none.
            identity=FIELD_MANAGER,
        )
        # kopf has taken them.
        self._around.take_signals()
        return tasks


def _now() -> datetime:
    return datetime.now(UTC)
