"""Which operator leads, and on which machine: faults of that machine have to be told from those of any other."""

from __future__ import annotations

import time

from robustrl_api.names import Role
from robustrl_e2e.cluster_job import ClusterJob
from robustrl_e2e.stack import NAMESPACE
from robustrl_operator.analyze.silence import AGENT_START, FIRST_SECONDS
from robustrl_operator.faults.kind import KINDS, Means
from robustrl_operator.faults.matrix import Moment, Row

LEADER_SECONDS = 30.0
MOVE_SECONDS = 120.0
POLL_SECONDS = 0.2
BEGINNING = AGENT_START + FIRST_SECONDS
"""So long a pod may be silent that is about as new as its operator; the next fault comes when that is over."""


def leader(job: ClusterJob) -> str:
    """The operator's pod that leads, waited for where one has just given the lease back.

    Raises:
        TimeoutError: if no operator leads within `LEADER_SECONDS`.
    """
    deadline = time.monotonic() + LEADER_SECONDS
    while not (holder := lease_holder(job)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no operator has taken the lease for {LEADER_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    return holder


def lease_holder(job: ClusterJob) -> str:
    """Who is in the operators' lease; empty between two leaders."""
    lease = job.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/robustrl-operator")
    return str(lease["spec"].get("holderIdentity") or "")


def place_leader(job: ClusterJob, row: Row) -> None:
    """Before a machine of the managers dies: have the leader on it, or elsewhere, as the row wants it.

    Raises:
        TimeoutError: no operator comes to lead there.
    """
    if KINDS[row.kind].role is not Role.MANAGER or KINDS[row.kind].deed is not Means.CUT_POWER:
        return
    machine = job.playing(Role.MANAGER)[0]["node"]
    together = row.moment is Moment.LEADER
    deadline = time.monotonic() + MOVE_SECONDS
    while (_machine_of(job, leading := leader(job)) == machine) is not together:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no operator leads {'on' if together else 'off'} {machine} ({MOVE_SECONDS:.0f} s)")
        _resign(job, leading)
        time.sleep(BEGINNING.total_seconds())


def _machine_of(job: ClusterJob, operator: str) -> str:
    return str(job.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{operator}")["spec"]["nodeName"])


def _resign(job: ClusterJob, leading: str) -> None:
    """Have another operator lead, and wait until there are as many of them as before."""
    job.kubectl("-n", NAMESPACE, "delete", "pod", leading)
    job.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/robustrl-operator", f"--timeout={MOVE_SECONDS:.0f}s")
    while leader(job) == leading:
        time.sleep(POLL_SECONDS)
