"""An RLJob on the development cluster: apply it, watch it, hurt it."""

from __future__ import annotations

import copy
import json
import subprocess
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml

from robustrl_api.job import RLJob
from robustrl_api.names import API_VERSION, PLURAL, Role
from robustrl_api.status import RLJobStatus, has_ended
from robustrl_e2e import cluster
from robustrl_e2e.cluster import binaries
from robustrl_e2e.cluster.api import describe
from robustrl_e2e.cluster.progress import START_SECONDS, step
from robustrl_e2e.stack import NAMESPACE, ROOT, site_packages
from robustrl_operator.report.timeline import PodSample, Sample, Timeline

POLL_SECONDS = 0.2
NOT_FOUND = 404
Object = dict[str, Any]
T = TypeVar("T")


def sample(name: str, **spec: Any) -> Object:
    """The sort4 example under another name, with fields of its spec replaced."""
    manifest: Object = yaml.safe_load((ROOT / "examples" / "sort4" / "rljob.yaml").read_text())
    manifest["metadata"]["name"] = name
    manifest["spec"].update(spec)
    return for_dev_cluster(manifest, name)


def for_dev_cluster(manifest: Object, claim: str) -> Object:
    """Give the pods torch from the host, and the manager its place away from the machines with accelerators."""
    manifest = copy.deepcopy(manifest)
    spec = manifest["spec"]
    for role in ("trainer", "manager"):
        pod = spec[role]["template"]["spec"]
        pod["containers"][0].setdefault("env", []).append({"name": "PYTHONPATH", "value": "/workspace:/opt/python"})
        pod["containers"][0]["volumeMounts"].append({"name": "python", "mountPath": "/opt/python", "readOnly": True})
        pod["volumes"].append({"name": "python", "hostPath": {"path": site_packages()}})
        for volume in pod["volumes"]:
            if "persistentVolumeClaim" in volume:
                volume["persistentVolumeClaim"]["claimName"] = claim
    spec["manager"]["template"]["spec"]["nodeSelector"] = {"robustrl.dev/pool": "cpu"}
    return manifest


@dataclass
class ClusterJob:
    """One RLJob and what is known of it. Use `create` to make one, or `prepare` and `apply`."""

    running: cluster.Cluster
    name: str
    timeline: Timeline = field(default_factory=Timeline)

    def __post_init__(self) -> None:
        self._config = cluster.kubeconfig(self.running.name)
        self.api = cluster.Api(self._config)
        self._path = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}/{self.name}"
        self._pods: list[Object] = []

    @classmethod
    def create(cls, running: cluster.Cluster, manifest: Object) -> ClusterJob:
        """Apply the job and its volume; a job of the same name is deleted first, with its volume."""
        job = cls.prepare(running, manifest["metadata"]["name"])
        job.apply(manifest)
        return job

    @classmethod
    def prepare(cls, running: cluster.Cluster, name: str) -> ClusterJob:
        """The volume of a job that is yet to be applied; one of the same name is deleted first, with its volume."""
        job = cls(running, name)
        job.delete()
        claim = yaml.safe_load((ROOT / "examples" / "sort4" / "storage.yaml").read_text())
        claim["metadata"]["name"] = name
        job.apply(claim)
        return job

    def apply(self, *manifests: Object) -> None:
        """Run `kubectl apply`: the job itself, and what it needs."""
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(manifests))

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl on the job's namespace.

        Raises:
            RuntimeError: with what kubectl said.
        """
        command = [str(binaries.kubectl()), "--kubeconfig", str(self._config), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=START_SECONDS + 60)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def delete(self) -> None:
        """Delete the job, its pods and its volume, and wait until they are gone."""
        self.kubectl("delete", "rljob", self.name, "--ignore-not-found", "--wait=true", "--timeout=60s")
        selector = f"robustrl.dev/job={self.name}"
        self.kubectl("delete", "pods", "-l", selector, "--force", "--grace-period=0", "--wait=true", "--timeout=60s")
        self.kubectl("delete", "pvc", self.name, "--ignore-not-found", "--wait=true", "--timeout=60s")

    def read(self) -> RLJob:
        """The job as the API server has it now."""
        raw = self.api.get(self._path)
        fields = {name: raw[name] for name in ("apiVersion", "kind", "metadata", "spec")}
        return RLJob.model_validate({**fields, "status": raw.get("status") or {}})

    @property
    def status(self) -> RLJobStatus:
        return self.read().status

    def pods(self) -> list[Object]:
        """The job's pods with what their agents said last, from the operator; the last known while it is away."""
        try:
            jobs = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/robustrl-operator:http/proxy/v1/jobs")
            self._pods = next(job["pods"] for job in jobs if job["key"] == f"default/{self.name}")
        except (urllib.error.URLError, OSError, StopIteration, ValueError):
            pass
        return self._pods

    def playing(self, role: Role) -> list[Object]:
        """Live pods that play a role now; trainers in the order of their ranks."""
        members = {member.uid: member.rank for member in self.status.members}
        live = [pod for pod in self.pods() if not pod["deleting"]]
        if role is Role.TRAINER:
            return sorted((pod for pod in live if pod["uid"] in members), key=lambda pod: members[pod["uid"]])
        return [pod for pod in live if pod["role"] == role and pod["uid"] not in members]

    def step(self) -> int:
        """Steps committed."""
        return max((pod["report"]["step"] for pod in self.pods() if pod["report"]), default=0)

    def take_sample(self) -> Sample:
        """Add the present moment to the timeline."""
        status, pods = self.status, self.pods()
        members = {member.uid for member in status.members}
        manager: Object = next((p["report"]["metrics"] for p in pods if p["role"] == Role.MANAGER and p["report"]), {})
        self.timeline.add(
            Sample(
                step=max(self.step(), status.step),
                epoch=status.epoch,
                reward=manager.get("reward_mean"),
                tokens_total=manager.get("tokens_total"),
                recovering=status.recovery is not None,
                pods=tuple(_pod_sample(pod, members) for pod in pods),
            )
        )
        return self.timeline.samples[-1]

    def wait(self, until: Callable[[Sample], bool], what: str, seconds: float) -> Sample:
        """Sample until a condition holds. An API server that does not answer now is asked again.

        Raises:
            TimeoutError: it does not in time, or the job ended before it did.
            urllib.error.HTTPError: the job is gone.
        """
        deadline = time.monotonic() + seconds
        while True:
            seen, why = _asked(lambda: (self.take_sample(), has_ended(self.status)))
            if seen is not None:
                if until(seen[0]):
                    return seen[0]
                if seen[1]:
                    raise TimeoutError(f"the job ended while waiting for {what}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {seconds:.0f} s{why}")
            time.sleep(POLL_SECONDS)

    def until_step(self, step: int, seconds: float = 600) -> Sample:
        """Wait until so many steps are committed."""
        return self.wait(lambda sample: sample.step >= step, f"step {step}", seconds)

    def until_ended(self, seconds: float = 1200) -> RLJobStatus:
        """Wait for the job's end, as `wait` does."""
        deadline = time.monotonic() + seconds
        while True:
            status, why = _asked(lambda: self.status)
            if status is not None and has_ended(status):
                return status
            if time.monotonic() > deadline:
                raise TimeoutError(f"the job did not end within {seconds:.0f} s{why}")
            _asked(self.take_sample)
            time.sleep(POLL_SECONDS)

    def execute(self, pod: str, *command: str) -> str:
        """Run a command in a pod."""
        return self.kubectl("exec", pod, "--", *command)


def _asked(look: Callable[[], T]) -> tuple[T | None, str]:
    """What is seen, or why nothing is: a server that is away or busy for a moment is no reason to give a run up."""
    try:
        return look(), ""
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == NOT_FOUND:
            raise
        return None, f"; the API server: {describe(error)}"


def _pod_sample(pod: Object, members: set[str]) -> PodSample:
    report = pod["report"]
    role = Role.TRAINER.value if pod["uid"] in members else str(pod["role"])
    gone = pod["deleting"] or pod["phase"] == "Failed"
    tokens = report["metrics"].get("generation_tokens_total", 0.0) if report else 0.0
    return PodSample(pod["name"], "lost" if gone else role, tokens, bool(report and report["admitted"]))


def read_ledger(job: ClusterJob) -> Object:
    """Audit and curve from the ledger on the job's volume, read by a pod of its own: the job may have ended."""
    image = job.read().spec.manager.template.spec.containers[0].image
    name = f"{job.name}-audit"
    job.kubectl("delete", "pod", name, "--ignore-not-found", "--force", "--grace-period=0")
    job.kubectl("apply", "-f", "-", text=yaml.safe_dump(_audit_pod(name, image, job.name)))
    with step("audit of the ledger"):
        succeeded = "--for=jsonpath={.status.phase}=Succeeded"
        job.kubectl("wait", f"pod/{name}", succeeded, f"--timeout={START_SECONDS:.0f}s")
    found: Object = json.loads(job.kubectl("logs", name))
    job.kubectl("delete", "pod", name, "--force", "--grace-period=0")
    return found


def _audit_pod(name: str, image: str, claim: str) -> Object:
    container = {
        "name": "audit",
        "image": image,
        # Findings are for the caller: the pod has done its work then too.
        "command": ["sh", "-c", "python3 -m robustrl.audit /storage/ledger.sqlite || [ $? = 1 ]"],
        "volumeMounts": [{"name": "storage", "mountPath": "/storage"}],
    }
    volume = {"name": "storage", "persistentVolumeClaim": {"claimName": claim}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
