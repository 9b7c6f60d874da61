"""Faults in a job on the development cluster. Each returns the moment it struck, in seconds since the epoch."""

from __future__ import annotations

import signal
import time

from robustrl_api.names import Role
from robustrl_e2e import cluster
from robustrl_e2e.cluster import machine
from robustrl_e2e.cluster_job import ClusterJob
from robustrl_e2e.stack import NAMESPACE

# Runs in the pod: signals the process under the agent's care, which leads a session of its own, and says when.
_SIGNAL_CHILD = """
import os, sys, time
def stat(pid):
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
child = next(pid for pid in pids if stat(pid)[1] == "1" and stat(pid)[3] == str(pid))
now = time.time()
os.kill(child, int(sys.argv[1]))
print(now)
"""


def kill_worker(job: ClusterJob, rank: int = -1) -> float:
    """SIGKILL of one training process."""
    return _signal_child(job, job.playing(Role.TRAINER)[rank]["name"], signal.SIGKILL)


def stop_worker(job: ClusterJob, rank: int = -1) -> float:
    """SIGSTOP of one training process: it hangs, and its agent is well."""
    return _signal_child(job, job.playing(Role.TRAINER)[rank]["name"], signal.SIGSTOP)


def kill_engine(job: ClusterJob) -> float:
    """SIGKILL of one inference engine."""
    return _signal_child(job, job.playing(Role.ROLLOUT)[0]["name"], signal.SIGKILL)


def stop_engine(job: ClusterJob) -> float:
    """SIGSTOP of one inference engine."""
    return _signal_child(job, job.playing(Role.ROLLOUT)[0]["name"], signal.SIGSTOP)


def kill_managers(job: ClusterJob) -> float:
    """SIGKILL of the managers' process."""
    return _signal_child(job, job.playing(Role.MANAGER)[0]["name"], signal.SIGKILL)


def _signal_child(job: ClusterJob, pod: str, number: signal.Signals) -> float:
    command = ("env", "-u", "PYTHONPATH", "python3", "-c", _SIGNAL_CHILD, str(int(number)))
    return float(job.execute(pod, *command))


def delete_trainer(job: ClusterJob, rank: int = -1) -> float:
    """`kubectl delete pod` of a trainer."""
    return _delete(job, job.playing(Role.TRAINER)[rank]["name"])


def delete_rollout(job: ClusterJob) -> float:
    """`kubectl delete pod` of a rollout."""
    return _delete(job, job.playing(Role.ROLLOUT)[0]["name"])


def delete_manager(job: ClusterJob) -> float:
    """`kubectl delete pod` of the managers."""
    return _delete(job, job.playing(Role.MANAGER)[0]["name"])


def delete_operator(job: ClusterJob) -> float:
    """Delete every operator's pod, the one that leads and the one that waits; their Deployment makes others."""
    struck = time.time()
    selector = "app.kubernetes.io/name=robustrl-operator"
    job.kubectl("-n", NAMESPACE, "delete", "pod", "-l", selector, "--wait=false")
    return struck


def leader(job: ClusterJob) -> str:
    """The operator's pod that leads; empty between two leaders."""
    lease = job.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/robustrl-operator")
    return str(lease["spec"].get("holderIdentity") or "")


def kill_leader(job: ClusterJob) -> float:
    """Take the leader's pod away at once: it says no goodbye and gives nothing back."""
    struck = time.time()
    job.kubectl("-n", NAMESPACE, "delete", "pod", leader(job), "--grace-period=0", "--force", "--wait=false")
    return struck


def _delete(job: ClusterJob, pod: str) -> float:
    struck = time.time()
    job.api.delete(f"/api/v1/namespaces/default/pods/{pod}")
    return struck


def cut_trainer_power(job: ClusterJob, rank: int = -1) -> float:
    """A trainer's machine loses power; `mend` gives it back."""
    return _cut_power(job, job.playing(Role.TRAINER)[rank]["node"])


def cut_rollout_power(job: ClusterJob) -> float:
    """A rollout's machine loses power; `mend` gives it back."""
    return _cut_power(job, job.playing(Role.ROLLOUT)[0]["node"])


def _cut_power(job: ClusterJob, node: str) -> float:
    struck = time.time()
    cluster.kill_node(job.running, node)
    return struck


def mend(job: ClusterJob) -> None:
    """Boot every machine that is down."""
    for node in job.running.node_names:
        if not machine.alive(job.running.worker(node)):
            cluster.revive_node(job.running, node)
