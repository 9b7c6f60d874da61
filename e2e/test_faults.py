"""Faults on a real cluster: only the role that failed restarts, and nothing is lost or trained twice.

The tests are the life of one job and run in this order.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from robustrl_api.names import Role
from robustrl_e2e import cluster, faults
from robustrl_e2e.cluster_job import ClusterJob, sample

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

SECONDS = 120.0
TAKEOVER_SECONDS = 5.0
ROOM_SECONDS = 5.0
"""For two cores that play eight machines."""
HANGS_ARE_FOUND_SOON = {
    "trainer": {"idleSeconds": 8},
    "rollout": {"zeroThroughputSeconds": 8},
    "manager": {"unansweredSeconds": 8},
    "probeSeconds": 2,
}


@pytest.fixture(scope="module")
def job(running: cluster.Cluster) -> Iterator[ClusterJob]:
    """A job with a small batch, so that two cores can play eight machines."""
    manifest = sample("faults", steps=100_000)
    manifest["spec"]["detection"] = HANGS_ARE_FOUND_SOON
    manifest["spec"]["data"] |= {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32}
    job = ClusterJob.create(running, manifest)
    yield job
    job.delete()


def settled(job: ClusterJob) -> ClusterJob:
    """Wait until the job has all it wants and makes steps."""
    faults.mend(job)
    wanted = job.read().spec.rollout.replicas
    job.wait(
        lambda s: s.epoch > 0 and not s.recovering and sum(pod.admitted for pod in s.pods) >= wanted,
        "all roles",
        SECONDS,
    )
    job.until_step(job.step() + 3, SECONDS)
    return job


def uids(job: ClusterJob) -> dict[str, str]:
    return {pod["name"]: pod["uid"] for pod in job.pods() if not pod["deleting"]}


def boots(job: ClusterJob) -> dict[str, str]:
    """Which run of its agent each pod is in: another value means that the container restarted."""
    return {pod["name"]: pod["report"]["boot"] for pod in job.pods() if pod["report"]}


def progress(job: ClusterJob) -> Any:
    (manager,) = job.playing(Role.MANAGER)
    with urllib.request.urlopen(f"http://{manager['address']}:8300/v1/progress", timeout=5) as response:
        return json.load(response)


def recovered(job: ClusterJob, epoch: int) -> None:
    """Wait for the first step of a later epoch."""
    job.wait(lambda s: s.epoch > epoch and not s.recovering, "recovery", SECONDS)
    job.until_step(job.step() + 2, SECONDS)


def test_a_killed_worker_restarts_in_place(job: ClusterJob) -> None:
    settled(job)
    before, agents, epoch = uids(job), boots(job), job.status.epoch
    faults.kill_worker(job)
    recovered(job, epoch)
    assert uids(job) == before
    assert boots(job) == agents
    assert job.status.epoch == epoch + 1
    assert job.status.incidents[-1].cause == "WorkerExited"


def test_rank_0_may_die_too(job: ClusterJob) -> None:
    settled(job)
    before, epoch = uids(job), job.status.epoch
    faults.kill_worker(job, rank=0)
    recovered(job, epoch)
    assert uids(job) == before
    assert job.status.epoch == epoch + 1


def test_a_killed_engine_restarts_in_place_and_training_goes_on(job: ClusterJob) -> None:
    settled(job)
    before, epoch = uids(job), job.status.epoch
    faults.kill_engine(job)
    job.until_step(job.step() + 5, SECONDS)
    settled(job)
    assert (uids(job), job.status.epoch) == (before, epoch)


def test_a_stopped_worker_is_found_and_restarts_in_place(job: ClusterJob) -> None:
    settled(job)
    before, agents, epoch = uids(job), boots(job), job.status.epoch
    faults.stop_worker(job)
    recovered(job, epoch)
    assert (uids(job), boots(job)) == (before, agents)
    assert job.status.incidents[-1].cause == "WorkerHung"


def test_a_stopped_engine_is_found_and_restarts_in_place(job: ClusterJob) -> None:
    settled(job)
    before, agents, epoch = uids(job), boots(job), job.status.epoch
    faults.stop_engine(job)
    job.wait(lambda _: job.status.incidents[-1].cause == "EngineHung", "verdict", SECONDS)
    settled(job)
    assert (uids(job), boots(job), job.status.epoch) == (before, agents, epoch)


def test_a_deleted_trainer_pod_is_replaced_by_a_rollout(job: ClusterJob) -> None:
    settled(job)
    before, epoch = uids(job), job.status.epoch
    lost = job.playing(Role.TRAINER)[-1]["name"]
    faults.delete_trainer(job)
    recovered(job, epoch)
    members = [member.pod for member in job.status.members]
    assert lost not in members
    assert any("rollout" in name for name in members)
    settled(job)
    kept = {name: uid for name, uid in uids(job).items() if name in before}
    assert kept == {name: uid for name, uid in before.items() if name != lost}
    (new,) = uids(job).keys() - before.keys()
    assert "rollout" in new, "the lost capacity returns as a rollout"
    assert job.status.incidents[-1].cause == "PodLeaving"
    assert "rule 7" in job.status.incidents[-1].decision, "the trainers handed over at a commit"


def test_a_dead_trainer_node_costs_one_pod_while_rollouts_generate(job: ClusterJob) -> None:
    settled(job)
    before, agents, epoch = uids(job), boots(job), job.status.epoch
    lost = job.playing(Role.TRAINER)[-1]["name"]
    tokens = progress(job)["tokens_total"]
    faults.cut_trainer_power(job)
    generated = [tokens]
    while job.take_sample().epoch == epoch:
        time.sleep(0.5)
        generated.append(progress(job)["tokens_total"])
    assert generated[-1] > generated[0], "rollouts generated nothing during the outage"
    recovered(job, epoch)
    settled(job)
    survivors = before.keys() - {lost}
    assert {name: boots(job)[name] for name in survivors} == {name: agents[name] for name in survivors}
    assert job.status.epoch == epoch + 1


def test_a_deleted_rollout_pod_does_not_touch_training(job: ClusterJob) -> None:
    settled(job)
    before, epoch = uids(job), job.status.epoch
    lost = job.playing(Role.ROLLOUT)[0]["name"]
    faults.delete_rollout(job)
    job.until_step(job.step() + 3, SECONDS)
    settled(job)
    assert job.status.epoch == epoch
    assert before.keys() - uids(job).keys() == {lost}


@pytest.mark.parametrize("how", ["process", "pod"])
def test_managers_restart_alone(job: ClusterJob, how: str) -> None:
    settled(job)
    others = {name: uid for name, uid in uids(job).items() if "manager" not in name}
    epoch = job.status.epoch
    if how == "process":
        faults.kill_managers(job)
    else:
        faults.delete_manager(job)
    job.until_step(job.step() + 3, SECONDS)
    settled(job)
    assert {name: uid for name, uid in uids(job).items() if "manager" not in name} == others
    assert job.status.epoch == epoch


@pytest.mark.parametrize("delay_seconds", [0.0, 0.3, 1.0])
def test_the_operator_may_die_in_the_middle_of_a_recovery(job: ClusterJob, delay_seconds: float) -> None:
    settled(job)
    before, epoch = uids(job), job.status.epoch
    faults.kill_worker(job)
    time.sleep(delay_seconds)
    faults.delete_operator(job)
    recovered(job, epoch)
    settled(job)
    assert uids(job) == before
    assert job.status.epoch == epoch + 1


def test_another_operator_takes_over_within_seconds(job: ClusterJob) -> None:
    settled(job)
    before, epoch = faults.leader(job), job.status.epoch
    struck = faults.kill_leader(job)
    while faults.leader(job) in ("", before):
        assert time.time() - struck < TAKEOVER_SECONDS + ROOM_SECONDS, "nobody took over"
        time.sleep(0.1)
    faults.kill_worker(job)
    recovered(job, epoch)


def test_nothing_was_lost_or_trained_twice(job: ClusterJob) -> None:
    settled(job)
    (manager,) = job.playing(Role.MANAGER)
    with urllib.request.urlopen(f"http://{manager['address']}:8300/v1/audit", timeout=20) as response:
        audit = json.load(response)
    assert audit["ok"], audit
    assert audit["trajectories"]["consumed"] >= 64 * 20
