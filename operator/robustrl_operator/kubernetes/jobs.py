"""One reconciler a job: started when the job is first seen, ended when it is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from robustrl_api.names import CONTROLLER
from robustrl_operator.control.detectors import load_detectors
from robustrl_operator.control.hub import Clock, ControlHub, PodIdentity
from robustrl_operator.control.prober import Prober
from robustrl_operator.control.reconciler import Reconciler
from robustrl_operator.kubernetes.body import KubernetesBody, key_of
from robustrl_operator.report.incidents import record

log = logging.getLogger(__name__)

MAX_FAULTS = 5
"""Faults of an unreadable object that its Event names."""
Object = dict[str, Any]


class Jobs:
    """Owns the reconcilers and wakes them, for as long as this operator leads; `stop` ends that for good."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.hub = ControlHub(clock, self._wake_for)
        self.prober = Prober(clock, self.wake_all)
        self._body: KubernetesBody | None = None
        self._running: dict[str, tuple[Reconciler, asyncio.Task[None]]] = {}
        self._invalid: dict[str, str] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._detectors = load_detectors()
        self._closed = False

    def attach(self, body: KubernetesBody) -> None:
        self._body = body

    def seen(self, obj: Object) -> None:
        """An RLJob came or changed."""
        assert self._body is not None
        if self._closed:
            return
        if (obj.get("spec") or {}).get("managedBy", CONTROLLER) != CONTROLLER:
            return
        self._body.take_job(obj)
        key = key_of(obj)
        try:
            self._body.job(key)
        except ValidationError as error:
            self._leave_alone(key, obj, error)
            return
        self._invalid.pop(key, None)
        # One whose job was just deleted may have ended without this being noted yet: this is another job.
        if key not in self._running or self._running[key][1].done():
            self._start(key, self._body)
        self.wake(key)

    def _start(self, key: str, body: KubernetesBody) -> None:
        reconciler = Reconciler(key, body, self.hub, self.prober, self._clock, self._detectors)
        task = asyncio.create_task(reconciler.run(), name=f"reconcile-{key}")
        task.add_done_callback(lambda done: self._ended(key, done))
        self._running[key] = (reconciler, task)

    def _leave_alone(self, key: str, obj: Object, error: ValidationError) -> None:
        """An object that cannot be read is left as it is until it changes. What is wrong is said once."""
        assert self._body is not None
        if key in self._running:
            self._running.pop(key)[1].cancel()
        why = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:MAX_FAULTS])
        if self._invalid.get(key) != why:
            self._invalid[key] = why
            telling = asyncio.create_task(self._body.publish_invalid(obj, why), name=f"invalid-{key}")
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    def gone(self, obj: Object) -> None:
        """An RLJob was deleted; its pods follow by their owner references."""
        assert self._body is not None
        self._body.forget_job(key_of(obj), obj["metadata"]["uid"])
        self._invalid.pop(key_of(obj), None)
        self.wake(key_of(obj))

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        if key in self._running and self._running[key][1] is task:
            del self._running[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: the reconcile loop died", key, exc_info=task.exception())

    def wake(self, key: str) -> None:
        if key in self._running:
            self._running[key][0].wake()

    def wake_all(self) -> None:
        for reconciler, _ in self._running.values():
            reconciler.wake()

    def _wake_for(self, identity: PodIdentity) -> None:
        """A pod said something new. Its job is found by its pod, which the informer knows."""
        assert self._body is not None
        assert self._body.pod_informer is not None
        pod = self._body.pod_informer.objects.get(identity.uid)
        if pod is not None:
            self.wake(key_of(pod))

    @property
    def reconcilers(self) -> Iterator[Reconciler]:
        return (reconciler for reconciler, _ in self._running.values())

    def overview(self) -> list[dict[str, object]]:
        """Every job with what its agents said last, for people and dashboards."""
        return [self._describe(reconciler.key) for reconciler in self.reconcilers]

    def incidents(self) -> list[dict[str, object]]:
        """Every incident that the jobs' status holds, oldest first in each."""
        assert self._body is not None
        jobs = ((reconciler.key, self._body.job(reconciler.key)) for reconciler in self.reconcilers)
        return [record(key, incident) for key, job in jobs if job for incident in job.status.incidents]

    def _describe(self, key: str) -> dict[str, object]:
        assert self._body is not None
        job = self._body.job(key)
        pods = []
        for pod in self._body.pods(key):
            heard = self.hub.heard(pod.uid)
            report = heard.report.model_dump(mode="json", by_alias=True) if heard else None
            observed = self.hub.nodes.observed(pod.uid)
            reading = observed.reading.model_dump(mode="json", by_alias=True) if observed else None
            pods.append({"name": pod.name, "uid": pod.uid, "role": pod.role, "node": pod.node, "phase": pod.phase,
                         "deleting": pod.deleting, "address": pod.address, "report": report,
                         "reading": reading})  # fmt: skip
        status = job.status.model_dump(mode="json", by_alias=True) if job else None
        return {"key": key, "status": status, "pods": pods}

    def stop(self) -> None:
        """Act no more from this moment on: not for the jobs there are, and not for any that is still heard of."""
        self._closed = True
        self.hub.close()
        self.prober.stop()
        for task in self._tasks():
            task.cancel()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*(task for _, task in self._running.values()), *self._telling]

    async def close(self) -> None:
        """Stop, and wait until all that was under way is over."""
        tasks = self._tasks()
        self.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.prober.close()
