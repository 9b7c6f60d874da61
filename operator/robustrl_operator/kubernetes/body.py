"""The Kubernetes body: sees through informers, acts through the API server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.core_v1 import Event as CoreEvent
from lightkube.resources.core_v1 import Pod, PodEviction
from lightkube.types import CascadeType, PatchType

from robustrl_api.control import Struck
from robustrl_api.errors import describe
from robustrl_api.job import RLJob
from robustrl_api.names import API_VERSION, KIND, LABEL_EPOCH, LABEL_JOB, LABEL_ROLE, EventReason
from robustrl_api.skew import read_stored
from robustrl_api.status import RLJobStatus
from robustrl_operator.control.body import CreationRefused, StatusConflict, StatusRefused
from robustrl_operator.control.hub import Clock
from robustrl_operator.faults.kind import Means
from robustrl_operator.kubernetes import certificates
from robustrl_operator.kubernetes.informer import Informer, newer
from robustrl_operator.kubernetes.lease import LeaseLost
from robustrl_operator.kubernetes.pod_factory import build_pod
from robustrl_operator.kubernetes.pod_reader import read_node, read_pod, taints_of
from robustrl_operator.kubernetes.predecessor import SilentNode
from robustrl_operator.kubernetes.resources import FIELD_MANAGER, RLJobResource, is_gone
from robustrl_operator.plan import Action, CreatePod, DeleteJob, DeletePod, Event, HarmMachine, Relabel
from robustrl_operator.view import NodeView, PodView

log = logging.getLogger(__name__)

MAX_MESSAGE = 1000
CA_AGAIN = timedelta(seconds=60)
"""The ConfigMap with the CA may be deleted, by itself or with its namespace; pods made after this have it again."""
REFUSALS = (400, 403, 422)
"""Answers that say of what is written that it is not allowed or not valid, and would say it again."""
EVICTION_REFUSALS = (*REFUSALS, 429, 500)
"""429: a PodDisruptionBudget keeps the pod, or the server asks for patience; 500: two of them are for it. Whoever wants
the fault may ask again."""
MAX_STRUCK_ERROR = 500
Object = dict[str, Any]


def key_of(obj: Object) -> str:
    """The job that an RLJob or one of its pods belongs to: NAMESPACE/NAME."""
    meta = obj["metadata"]
    name = meta["name"] if obj.get("kind") == KIND else (meta.get("labels") or {}).get(LABEL_JOB, "")
    return f"{meta['namespace']}/{name}"


def _is_owned(pod: Object, job: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == job["metadata"]["uid"] for owner in owners)


class KubernetesBody:
    """All jobs of one cluster.

    Args:
        may_act: asked before each thing that is done.
    """

    rendezvous_base = 29_500
    means = frozenset({Means.DELETE, Means.DRAIN, Means.BREAK_GPU})
    """Nodes belong to everybody on the cluster: the operator has no right to harm one, and asks for none. What a drain
    does to the job's own pod is its eviction, and what a broken GPU does is that its node's agent says so."""

    def __init__(
        self, client: AsyncClient, control_url: str, ca: str, clock: Clock, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        self._client, self._control_url, self._ca, self._clock = client, control_url, ca, clock
        self._may_act = may_act
        self._jobs: dict[str, Object] = {}
        self._ca_handed_out: dict[str, tuple[str, datetime]] = {}
        self._not_evicted: dict[str, tuple[str, Struck]] = {}
        """By job the pod (UID) whose eviction was refused last, and why."""
        self.pod_informer: Informer | None = None
        self.node_informer: Informer | None = None
        self.silent_node: SilentNode | None = None

    # What is seen.

    def take_job(self, obj: Object) -> None:
        """Note an RLJob, unless a newer state of it is known: our own writes come back late."""
        key = key_of(obj)
        if newer(obj, self._jobs.get(key)) or obj["metadata"]["uid"] != self._jobs[key]["metadata"]["uid"]:
            self._jobs[key] = obj

    def forget_job(self, key: str, uid: str) -> None:
        """The job is gone. What is heard late of one that was deleted does not concern its namesake."""
        if key in self._jobs and self._jobs[key]["metadata"]["uid"] == uid:
            del self._jobs[key]
            self._ca_handed_out.pop(key, None)
            self._not_evicted.pop(key, None)

    def job(self, key: str) -> RLJob | None:
        """The job as last seen, or None when it no longer exists.

        Raises:
            ValidationError: the stored object does not fit this operator's API.
        """
        obj = self._jobs.get(key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        fields = {name: obj[name] for name in ("apiVersion", "kind", "metadata", "spec") if name in obj}
        status = read_stored(RLJobStatus, obj.get("status") or {})
        return RLJob.model_validate({**fields, "status": status})

    def pods(self, key: str) -> tuple[PodView, ...]:
        """The pods of this very job: those of one of the same name that was deleted may still be there."""
        assert self.pod_informer is not None
        job = self._jobs.get(key)
        labelled = [pod for pod in self.pod_informer.objects.values() if key_of(pod) == key]
        taints = self._taints()
        kept, why = self._not_evicted.get(key, ("", None))
        found = [
            read_pod(pod, taints.get(pod.get("spec", {}).get("nodeName"), ()))
            for pod in labelled
            if job is not None and _is_owned(pod, job)
        ]
        found = [replace(pod, struck=why) if pod.uid == kept else pod for pod in found]
        return tuple(sorted(found, key=lambda pod: pod.name))

    def _taints(self) -> dict[str, list[Object]]:
        assert self.node_informer is not None
        return {node["metadata"]["name"]: taints_of(node) for node in self.node_informer.objects.values()}

    def nodes(self) -> dict[str, NodeView]:
        assert self.node_informer is not None
        found = (read_node(node) for node in self.node_informer.objects.values())
        # A node object that is gone takes its pods with it; a name not in here is simply not known to be bad.
        nodes = {node.name: node for node in found}
        if (silent := self.silent_node) and silent.name in nodes:
            nodes[silent.name] = replace(nodes[silent.name], silent_since=silent.since)
        return nodes

    # What is done.

    def _check(self) -> None:
        """Nothing is begun once another operator may act."""
        if not self._may_act():
            raise LeaseLost("another operator may act now")

    async def write_status(self, job: RLJob, status: RLJobStatus) -> None:
        self._check()
        meta = job.metadata
        key = f"{meta.namespace}/{meta.name}"
        version = self._jobs[key]["metadata"]["resourceVersion"]
        patch = {
            "metadata": {"resourceVersion": version},
            "status": status.model_dump(mode="json", by_alias=True),
        }
        try:
            stored = await self._client.patch(
                RLJobResource.Status, meta.name, patch, namespace=meta.namespace, patch_type=PatchType.MERGE
            )
        except ApiError as error:
            if is_gone(error, meta.name):
                # Its deletion was missed: a watch that begins anew does not tell of it.
                self.forget_job(key, meta.uid)
            if error.status.code in (404, 409):
                raise StatusConflict(str(error)) from error
            if error.status.code in REFUSALS:
                raise StatusRefused(error.status.message or str(error)) from error
            raise
        # It may have been deleted since.
        if key in self._jobs:
            self.take_job(_as_object(stored))

    async def carry_out(self, job: RLJob, action: Action) -> None:
        self._check()
        try:
            if isinstance(action, CreatePod):
                await self._create(job, action)
            elif isinstance(action, DeletePod):
                await self._delete(job, action)
            elif isinstance(action, HarmMachine):
                await self._evict(job, action)
            elif isinstance(action, Relabel):
                await self._relabel(job, action)
            elif isinstance(action, DeleteJob):
                await self._delete_job(job)
        except ApiError as error:
            if isinstance(action, DeleteJob) and is_gone(error, job.metadata.name):
                self.forget_job(f"{job.metadata.namespace}/{job.metadata.name}", job.metadata.uid)
            # 404: it is gone already. 409: it is there already, or has changed and will be looked at again.
            if error.status.code not in (404, 409):
                raise

    async def _create(self, job: RLJob, action: CreatePod) -> None:
        await self._ensure_ca(job)
        manifest = build_pod(job, action, self._control_url)
        try:
            created = await self._client.create(_as_pod(manifest))
        except ApiError as error:
            if error.status.code in REFUSALS:
                raise CreationRefused(error.status.message or str(error)) from error
            raise
        self._see(_as_object(created))

    async def _ensure_ca(self, job: RLJob) -> None:
        meta, now = job.metadata, self._clock()
        key = f"{meta.namespace}/{meta.name}"
        before = self._ca_handed_out.get(key)
        if before is None or before[0] != meta.uid or now - before[1] > CA_AGAIN:
            await certificates.hand_out(self._client, meta.namespace, self._ca)
            self._ca_handed_out[key] = (meta.uid, now)

    async def _delete(self, job: RLJob, action: DeletePod) -> None:
        grace = 0 if action.force else None
        await self._client.delete(Pod, action.name, namespace=job.metadata.namespace, grace_period=grace)

    async def _evict(self, job: RLJob, action: HarmMachine) -> None:
        """As a drain does to this very pod, its budget respected."""
        namespace = job.metadata.namespace
        eviction = PodEviction(
            metadata=ObjectMeta(name=action.name, namespace=namespace),
            deleteOptions=DeleteOptions(preconditions=Preconditions(uid=action.uid)),
        )
        try:
            await self._client.create(eviction, action.name, namespace=namespace)
        except ApiError as error:
            if error.status.code not in EVICTION_REFUSALS:
                raise
            why = f"its eviction was refused: {error.status.message or error}"[:MAX_STRUCK_ERROR]
            log.warning("%s/%s: %s", namespace, action.name, why)
            self._not_evicted[f"{namespace}/{job.metadata.name}"] = action.uid, Struck(id=action.request, error=why)

    async def _delete_job(self, job: RLJob) -> None:
        """Delete the RLJob; its pods follow. One of the same name that somebody made since is another job."""
        name, namespace = job.metadata.name, job.metadata.namespace
        stored = _as_object(await self._client.get(RLJobResource, name, namespace=namespace))
        if stored["metadata"]["uid"] == job.metadata.uid:
            log.info("%s/%s: deleting the job, whose time after its end is over", namespace, name)
            await self._client.delete(RLJobResource, name, namespace=namespace, cascade=CascadeType.BACKGROUND)

    async def _relabel(self, job: RLJob, action: Relabel) -> None:
        labels = {LABEL_ROLE: action.role.value, LABEL_EPOCH: str(action.epoch) if action.epoch >= 0 else "none"}
        patch = {"metadata": {"uid": action.uid, "labels": labels}}
        changed = await self._client.patch(
            Pod, action.name, patch, namespace=job.metadata.namespace, patch_type=PatchType.MERGE
        )
        self._see(_as_object(changed))

    def _see(self, pod: Object) -> None:
        """What we wrote is known at once: the next plan must not write it again."""
        assert self.pod_informer is not None
        self.pod_informer.take(pod)

    async def publish(self, job: RLJob, event: Event) -> None:
        meta = job.metadata
        await self._publish(meta.namespace, meta.name, meta.uid, event)

    async def publish_invalid(self, obj: Object, why: str) -> None:
        """Say what of a stored object this operator cannot read."""
        meta = obj["metadata"]
        event = Event(EventReason.INVALID, f"this operator cannot read the object: {why}", warning=True)
        await self._publish(meta["namespace"], meta["name"], meta["uid"], event)

    async def _publish(self, namespace: str, name: str, uid: str, event: Event) -> None:
        self._check()
        log.info("%s/%s %s: %s", namespace, name, event.reason, event.message)
        now = self._clock()
        core = CoreEvent(
            metadata=ObjectMeta(generateName=f"{name}.", namespace=namespace),
            involvedObject=ObjectReference(apiVersion=API_VERSION, kind=KIND, name=name, namespace=namespace, uid=uid),
            reason=event.reason.value,
            message=event.message[:MAX_MESSAGE],
            type="Warning" if event.warning else "Normal",
            source=EventSource(component=FIELD_MANAGER),
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        try:
            await self._client.create(core)
        except (ApiError, httpx2.HTTPError) as error:
            log.warning("event %s could not be published: %s", event.reason, describe(error))


def _as_pod(manifest: Object) -> Pod:
    pod = Pod.from_dict(manifest)
    assert isinstance(pod, Pod)
    return pod


def _as_object(resource: Any) -> Object:
    return dict(resource.to_dict())
