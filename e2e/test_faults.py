"""Faults on a real cluster: only the role that failed restarts, and nothing is lost or trained twice.

Some rows of the fault matrix (`make faults` plays them all) and what needs a story of its own. The tests are the
life of one job and run in this order.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from robustrl_api.names import Role
from robustrl_e2e import cluster
from robustrl_e2e.cluster_job import ClusterJob, sample
from robustrl_e2e.hand import ClusterHand
from robustrl_e2e.leader import leader, lease_holder
from robustrl_e2e.managers import progress_of
from robustrl_e2e.play import play, settled
from robustrl_operator.cli.main import main
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.faults.matrix import Place, Row, rows
from robustrl_operator.faults.strike import strike

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
CHOSEN = (
    "worker", "worker of rank 0", "worker-hang", "worker-exception", "engine", "engine-hang", "trainer-agent",
    "trainer-pod", "rollout-pod", "managers", "manager-pod", "trainer-drain",
)  # fmt: skip
ROWS = [row for row in rows(Place.CLUSTER) if row.name in CHOSEN]


@pytest.fixture(scope="module")
def job(running: cluster.Cluster) -> Iterator[ClusterJob]:
    """A job with a small batch, so that two cores can play eight machines."""
    manifest = sample("faults", steps=100_000)
    manifest["spec"]["detection"] = HANGS_ARE_FOUND_SOON
    manifest["spec"]["faultInjection"] = {"mode": "Allowed"}
    manifest["spec"]["data"] |= {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32}
    job = ClusterJob.create(running, manifest)
    yield job
    job.delete()


@pytest.fixture
def hand(job: ClusterJob) -> Iterator[ClusterHand]:
    """On a job that is settled; what it broke is mended afterwards."""
    settled(job)
    hand = ClusterHand(job)
    yield hand
    hand.mend()


def hit(hand: ClusterHand, kind: FaultKind) -> float:
    """Strike; when that was."""
    asyncio.run(strike(hand, kind))
    return hand.struck(kind)


def uids(job: ClusterJob) -> dict[str, str]:
    return {pod["name"]: pod["uid"] for pod in job.pods() if not pod["deleting"]}


def boots(job: ClusterJob) -> dict[str, str]:
    """Which run of its agent each pod is in: another value means that the container restarted."""
    return {pod["name"]: pod["report"]["boot"] for pod in job.pods() if pod["report"]}


def recovered(job: ClusterJob, epoch: int) -> None:
    """Wait for the first step of a later epoch."""
    job.wait(lambda s: s.epoch > epoch and not s.recovering, "recovery", SECONDS)
    job.until_step(job.step() + 2, SECONDS)


def test_there_are_the_rows_that_were_chosen() -> None:
    assert {row.name for row in ROWS} == set(CHOSEN)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_fault_restarts_its_role_only(job: ClusterJob, row: Row) -> None:
    settled(job)
    outcome = play(job, row)
    assert outcome.complaints == ()


def test_a_lost_trainer_comes_back_as_a_rollout(job: ClusterJob, hand: ClusterHand) -> None:
    before, epoch = uids(job), job.status.epoch
    lost = job.playing(Role.TRAINER)[-1]["name"]
    hit(hand, FaultKind.TRAINER_POD)
    recovered(job, epoch)
    assert any("rollout" in member.pod for member in job.status.members)
    settled(job)
    assert before.keys() - uids(job).keys() == {lost}
    (new,) = uids(job).keys() - before.keys()
    assert "rollout" in new, "the lost capacity returns as a rollout"


def test_a_dead_trainer_node_costs_one_pod_while_rollouts_generate(job: ClusterJob, hand: ClusterHand) -> None:
    before, agents, epoch = uids(job), boots(job), job.status.epoch
    lost = job.playing(Role.TRAINER)[-1]["name"]
    generated = [progress_of(job, seconds=5)["tokens_total"]]
    hit(hand, FaultKind.TRAINER)
    while job.take_sample().epoch == epoch:
        time.sleep(0.5)
        generated.append(progress_of(job, seconds=5)["tokens_total"])
    assert generated[-1] > generated[0], "rollouts generated nothing during the outage"
    recovered(job, epoch)
    hand.mend()
    settled(job)
    survivors = before.keys() - {lost}
    assert {name: boots(job)[name] for name in survivors} == {name: agents[name] for name in survivors}
    assert job.status.epoch == epoch + 1


@pytest.mark.parametrize("delay_seconds", [0.0, 0.3, 1.0])
def test_the_operator_may_die_in_the_middle_of_a_recovery(
    job: ClusterJob, hand: ClusterHand, delay_seconds: float
) -> None:
    before, epoch = uids(job), job.status.epoch
    hit(hand, FaultKind.WORKER)
    time.sleep(delay_seconds)
    hit(hand, FaultKind.OPERATORS)
    recovered(job, epoch)
    settled(job)
    assert uids(job) == before, [f"{each.pod}: {each.evidence}" for each in job.status.incidents[-3:]]
    assert job.status.epoch == epoch + 1


def test_another_operator_takes_over_within_seconds(job: ClusterJob, hand: ClusterHand) -> None:
    before, epoch = leader(job), job.status.epoch
    struck = hit(hand, FaultKind.LEADER)
    while lease_holder(job) in ("", before):
        assert time.time() - struck < TAKEOVER_SECONDS + ROOM_SECONDS, "nobody took over"
        time.sleep(0.1)
    hit(hand, FaultKind.WORKER)
    recovered(job, epoch)


def robustrl(job: ClusterJob, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command on the job as a user does; its exit status."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(job.running.name)))
    with pytest.raises(SystemExit) as ended:
        main([*words, "--namespace", "default"])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("fault", "causes"),
    [
        pytest.param(("worker", "rank", "0"), {"WorkerExited"}, id="process"),
        pytest.param(("rollout", "rollout/0"), {"HeartbeatLost"}, id="machine"),
        pytest.param(("trainer-drain", "rank", "1"), {"PodLeaving"}, id="drain"),
        pytest.param(("trainer-cut", "rank", "0"), {"HeartbeatLost"}, id="cut"),
        pytest.param(("image-gone", "rollout/0"), {"PodDeleted"}, id="image"),
    ],
)
def test_inject_follows_a_fault_on_purpose(
    job: ClusterJob,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: tuple[str, ...],
    causes: set[str],
) -> None:
    settled(job)
    code = robustrl(job, monkeypatch, "inject", *fault, "--job", job.name)
    said = capsys.readouterr().out
    assert (code, "over it" in said) == (0, True), said
    status = job.status
    assert status.injection is not None
    assert status.incidents[-1].injection == status.injection.id
    assert status.incidents[-1].cause in causes


def test_inject_of_what_is_no_fault_is_over_with_nothing_on_record(
    job: ClusterJob, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(job)
    before = job.status
    code = robustrl(job, monkeypatch, "inject", "storage-full", "--job", job.name)
    said = capsys.readouterr().out
    assert (code, "nothing was taken for a fault" in said) == (0, True), said
    settled(job)
    assert (job.status.epoch, job.status.incidents) == (before.epoch, before.incidents)


def test_nothing_was_lost_or_trained_twice(
    job: ClusterJob, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(job)
    code = robustrl(job, monkeypatch, "audit", job.name, "--output", "json")
    found = json.loads(capsys.readouterr().out)
    assert (code, found["findings"]) == (0, [])
    assert found["steps"] >= 20
