"""What faults can do to a job on the development cluster, and to the cluster itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from robustrl_api.control import Harm
from robustrl_api.injection import Request
from robustrl_api.names import ANNOTATION_INJECT, Role
from robustrl_e2e import cluster
from robustrl_e2e.cluster import machine
from robustrl_e2e.cluster_job import ClusterJob, Object
from robustrl_e2e.leader import leader
from robustrl_e2e.managers import ledger_of
from robustrl_e2e.stack import JOB_IMAGE, NAMESPACE
from robustrl_e2e.surroundings import USUAL, Surroundings
from robustrl_operator.faults.kind import (
    API_SECONDS,
    CUT_SECONDS,
    FREEZE_SECONDS,
    KINDS,
    LEASE_SECONDS,
    Blow,
    Deed,
    FaultKind,
    Means,
)
from robustrl_operator.local.storage_harm import SETTLE_SECONDS, StorageHarm, damage_copies

log = logging.getLogger(__name__)

# Runs in the pod: signals the process under the agent's care, which leads a session of its own, and says when.
_SIGNAL_CHILD = """
import os, sys, time
def stat(pid):
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
child = next(pid for pid in pids if stat(pid)[1] == "1" and stat(pid)[3] == str(pid))
time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
now = time.time()
os.kill(child, int(sys.argv[1]))
print(now)
"""
LEAD_SECONDS = 2.0
MEMORY = "/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/robustrl-memory"
"""Where a pod's memory is in its machine."""
EXPORTERS_MEANS = frozenset({Means.BREAK_GPU, Means.SILENCE_EXPORTERS, Means.STICK_EXPORTERS, Means.FALSIFY_EXPORTERS})
_SIGNALS = {Harm.KILL: signal.SIGKILL, Harm.STOP: signal.SIGSTOP, Harm.INTERRUPT: signal.SIGINT}


class ClusterHand:
    """A `Hand` on real machines, whose power and cables it holds."""

    def __init__(self, job: ClusterJob, surroundings: Surroundings = USUAL) -> None:
        self._job, self._exporters = job, surroundings.exporters
        self._checkpoints = surroundings.checkpoints
        self._storage = StorageHarm(self._checkpoints) if self._checkpoints is not None else None
        self._done: dict[Deed, float] = {}
        self._later: list[threading.Timer] = []

    def playing(self, role: Role) -> list[str]:
        return [pod["name"] for pod in self._job.playing(role)]

    async def do(self, blow: Blow) -> None:
        when = await asyncio.to_thread(self._do, blow)
        self._done.setdefault(blow.deed, when)

    def struck(self, kind: FaultKind) -> float:
        """When a fault of this kind first fell, which what was done before it did not, in seconds since the epoch."""
        return self._done[KINDS[kind].deed]

    def _do(self, blow: Blow) -> float:
        if isinstance(blow.deed, Harm):
            return self._signal(blow) if blow.deed in _SIGNALS else self._inject(blow)
        when = time.time()
        self._from_outside(blow.pod, blow.deed)
        return when

    def _signal(self, blow: Blow) -> float:
        assert isinstance(blow.deed, Harm)
        # Those that are struck together are struck at one moment, however long it takes to get into each pod.
        moment = str(time.time() + LEAD_SECONDS)
        number = str(int(_SIGNALS[blow.deed]))
        command = ("env", "-u", "PYTHONPATH", "python3", "-c", _SIGNAL_CHILD, number, moment)
        return float(self._job.execute(blow.pod, *command))

    def _inject(self, blow: Blow) -> float:
        """What only the agent can do is asked of it, as `robustrl inject` does."""
        kind = next(kind for kind, anatomy in KINDS.items() if self._fits(kind, blow))
        request = Request(id=secrets.token_hex(4), kind=kind, target=blow.pod).model_dump_json(by_alias=True)
        when = time.time()
        patch = {"metadata": {"annotations": {ANNOTATION_INJECT: request}}}
        self._job.kubectl("patch", "rljob", self._job.name, "--type", "merge", "-p", json.dumps(patch))
        return when

    def _fits(self, kind: FaultKind, blow: Blow) -> bool:
        role = KINDS[kind].role
        return KINDS[kind].deed is blow.deed and role is not None and blow.pod in self.playing(role)

    def _from_outside(self, pod: str, means: Means) -> None:
        running = self._job.running
        if means is Means.DELETE:
            self._job.api.delete(f"/api/v1/namespaces/default/pods/{pod}")
        elif means is Means.TAKE_IMAGE:
            cluster.take_away(running, JOB_IMAGE)
        elif means is Means.CUT_POWER:
            cluster.kill_node(running, self._node(pod))
        elif means is Means.CUT_LINK:
            node = self._node(pod)
            cluster.cut_node(running, node)
            self._after(CUT_SECONDS, lambda: cluster.heal_node(running, node))
        elif means is Means.FREEZE:
            node = self._node(pod)
            cluster.freeze_node(running, node)
            self._after(FREEZE_SECONDS, lambda: cluster.thaw_node(running, node))
        elif means is Means.DRAIN:
            self._drain(self._node(pod))
        elif means is Means.DELETE_OPERATORS:
            selector = "app.kubernetes.io/name=robustrl-operator"
            self._job.kubectl("-n", NAMESPACE, "delete", "pod", "-l", selector, "--wait=false")
        elif means is Means.KILL_LEADER:
            name = leader(self._job)
            self._job.kubectl("-n", NAMESPACE, "delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
        elif means in EXPORTERS_MEANS and self._exporters is not None:
            self._exporters.do(means, pod)
        elif self._storage is not None and means is Means.FILL_STORAGE:
            self._storage.fill()
        elif self._storage is not None and means is Means.SEAL_STORAGE:
            self._storage.seal()
        elif self._checkpoints is not None and means is Means.DAMAGE_CHECKPOINT:
            self._damage(self._checkpoints)
        elif means is Means.STOP_API:
            self._after(0.0, lambda: cluster.stop_api(running, API_SECONDS))
        elif means is Means.TAKE_LEASE:
            self._after(0.0, lambda: take_lease(self._job, LEASE_SECONDS))
        else:
            raise ValueError(f"{means} cannot be done on the cluster")

    def _node(self, pod: str) -> str:
        return str(next(each["node"] for each in self._job.pods() if each["name"] == pod))

    def _drain(self, node: str) -> None:
        self._job.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")

    def _damage(self, stored: Path) -> None:
        """Every copy of the newest committed checkpoint, in storage and in the pods' memories."""
        time.sleep(SETTLE_SECONDS)
        newest = ledger_of(self._job).commits[-1].version
        shelves = [stored, *(self._memory(pod) / "checkpoints" for pod in self._job.pods())]
        damaged = sum(damage_copies(shelf, newest) for shelf in shelves)
        log.warning("checkpoint %s: %d copies are damaged", newest, damaged)

    def _memory(self, pod: Object) -> Path:
        return machine.reach(self._job.running.worker(pod["node"]), MEMORY.format(uid=pod["uid"]))

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, act)
        timer.start()
        self._later.append(timer)

    def mend(self) -> None:
        """See out what lasts for a while, boot every machine that is down, and let pods onto every node again."""
        for timer in self._later:
            timer.join()
        self._later.clear()
        if self._storage is not None:
            self._storage.mend()
        running = self._job.running
        for node in running.node_names:
            if not machine.alive(running.worker(node)):
                cluster.revive_node(running, node)
            with contextlib.suppress(RuntimeError):
                self._job.kubectl("uncordon", node)
        cluster.give_back(running, JOB_IMAGE)
        if self._exporters is not None:
            self._exporters.mend()
        self._done.clear()


def take_lease(job: ClusterJob, seconds: float) -> None:
    """Be in the operators' lease, as somebody who renews it and does nothing; then give it back."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _write_lease(job, "somebody-else")
        time.sleep(0.5)
    _write_lease(job, "")


def _write_lease(job: ClusterJob, holder: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    patch = {"spec": {"holderIdentity": holder, "renewTime": now}}
    job.kubectl("-n", NAMESPACE, "patch", "lease", "robustrl-operator", "--type", "merge", "-p", json.dumps(patch))
