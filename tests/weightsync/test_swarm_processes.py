"""The swarm as real processes over UCX: killed, stopped, damaged, cancelled at random moments; exact all the same.

Every run has a seed, which a failure prints. Replicas are used again from run to run; those that die are forked anew.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.weightsync.replica_process import CHUNK_BYTES, Replica, Replicas

pytest.importorskip("ucxx", reason="weights over UCX need the extra 'ucx'")
pytestmark = pytest.mark.timeout(120)

SIZE = 4 << 20
RUNS = 21
"""Of each kind of fault, in groups, so that a failure is near its group's name."""
MOMENT_SECONDS = 0.06
"""Faults come within this: about as long as a pull takes here."""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    started = Replicas(tmp_path_factory.mktemp("replicas"))
    yield started
    started.close()


class Run:
    """One publisher, some receivers, one version."""

    def __init__(self, replicas: Replicas, receivers: int, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.publisher, *self.receivers = replicas.take(1 + receivers)
        self.version = self.publisher.ask("hold", seed=seed, size=SIZE)
        self.addresses = [replica.address for replica in self.receivers]

    @property
    def all(self) -> list[Replica]:
        return [self.publisher, *self.receivers]

    def pull(self, replica: Replica, **more: Any) -> int:
        peers = [address for address in self.addresses if address != replica.address]
        fields = {"peers": peers, "publishers": [self.publisher.address], **more}
        return replica.tell("pull", root=self.version["root"], text=self.version["text"], **fields)

    def pause(self) -> None:
        time.sleep(self.rng.uniform(0, MOMENT_SECONDS))

    def check(self, answer: dict[str, Any]) -> None:
        assert answer.get("exact"), f"seed {self.seed}: {answer}"


@pytest.mark.parametrize("seed", range(0, RUNS * 2))
def test_relay_killed_at_a_random_moment(replicas: Replicas, seed: int) -> None:
    run = Run(replicas, 3, seed)
    pulls = {replica: run.pull(replica) for replica in run.receivers}
    run.pause()
    victim = run.rng.choice(run.receivers)
    victim.signal(signal.SIGKILL)
    for replica in run.receivers:
        if replica is not victim:
            run.check(replica.wait(pulls[replica]))
    replicas.give_back(run.all)


@pytest.mark.parametrize("seed", range(1000, 1000 + RUNS * 2))
def test_relay_stopped_at_a_random_moment(replicas: Replicas, seed: int) -> None:
    run = Run(replicas, 3, seed)
    pulls = {replica: run.pull(replica) for replica in run.receivers}
    run.pause()
    victim = run.rng.choice(run.receivers)
    victim.signal(signal.SIGSTOP)
    for replica in run.receivers:
        if replica is not victim:
            run.check(replica.wait(pulls[replica]))
    victim.signal(signal.SIGKILL)  # what it was doing when it was stopped is another test's
    replicas.give_back(run.all)


@pytest.mark.parametrize("seed", range(2000, 2000 + RUNS))
def test_flipped_bit_in_a_relay_is_found_and_the_relay_quarantined(replicas: Replicas, seed: int) -> None:
    run = Run(replicas, 2, seed)
    relay, puller = run.receivers
    run.check(relay.wait(run.pull(relay)))
    for chunk in range(0, SIZE, CHUNK_BYTES):
        if run.rng.random() < 0.3:
            relay.ask("flip", root=run.version["root"], at=chunk + run.rng.randrange(CHUNK_BYTES))
    answer = puller.wait(run.pull(puller))
    run.check(answer)
    assert set(answer["quarantined"]) <= {relay.address}, f"seed {seed}"
    assert answer["strikes"] <= 3, f"seed {seed}: no more is taken from it"
    replicas.give_back(run.all)


def test_relay_that_is_all_bad_gets_its_two_strikes(replicas: Replicas) -> None:
    run = Run(replicas, 2, 5)
    relay, puller = run.receivers
    run.check(relay.wait(run.pull(relay)))
    for chunk in range(0, SIZE, CHUNK_BYTES):
        relay.ask("flip", root=run.version["root"], at=chunk)
    answer = puller.wait(run.pull(puller))
    run.check(answer)
    assert answer["quarantined"] == [relay.address]
    assert 2 <= answer["strikes"] <= 3
    replicas.give_back(run.all)


@pytest.mark.parametrize("seed", range(3000, 3000 + RUNS))
def test_publisher_killed_mid_pull(replicas: Replicas, seed: int) -> None:
    """With every byte among the receivers all of them end exact; else all lack the same, and nothing is wrong."""
    run = Run(replicas, 3, seed)
    pulls = {replica: run.pull(replica, patience=2.0) for replica in run.receivers}
    run.pause()
    run.publisher.signal(signal.SIGKILL)
    answers = [replica.wait(number) for replica, number in pulls.items()]
    missing = {tuple(answer.get("missing", ())) for answer in answers}
    assert len(missing) == 1, f"seed {seed}: {answers}"
    if missing == {()}:
        for answer in answers:
            run.check(answer)
    replicas.give_back(run.all)


@pytest.mark.parametrize("seed", range(4000, 4000 + RUNS))
def test_cancelled_pull_writes_no_more_and_its_memory_may_be_used_again(replicas: Replicas, seed: int) -> None:
    run = Run(replicas, 2, seed)
    pulls = {replica: run.pull(replica) for replica in run.receivers}
    cancelled, other = run.receivers
    run.pause()
    answer = cancelled.ask("cancel", root=run.version["root"])
    assert answer["untouched"], f"seed {seed}"
    cancelled.wait(pulls[cancelled])
    run.check(cancelled.wait(run.pull(cancelled)))
    run.check(other.wait(pulls[other]))
    replicas.give_back(run.all)


@pytest.mark.parametrize("seed", range(5000, 5000 + RUNS))
def test_new_version_mid_pull_keeps_what_has_not_changed(replicas: Replicas, seed: int) -> None:
    run = Run(replicas, 2, seed)
    old = run.version["root"]
    pulls = {replica: run.pull(replica) for replica in run.receivers}
    run.pause()
    run.version = run.publisher.ask("hold", seed=seed + 10**6, size=SIZE, step=2, like=seed)
    for replica in run.receivers:
        had = replica.ask("have", root=old)["have"]
        answer = replica.wait(run.pull(replica, held=old))
        run.check(answer)
        kept = (had >> run.version["chunks"] // 2).bit_count() * CHUNK_BYTES
        assert answer["skipped"] >= kept, f"seed {seed}"
        replica.wait(pulls[replica])
    replicas.give_back(run.all)


@pytest.mark.parametrize("seed", range(6000, 6000 + RUNS))
def test_without_a_directory_one_known_peer_is_enough(replicas: Replicas, seed: int) -> None:
    """The others are heard of from it."""
    run = Run(replicas, 3, seed)
    first, second, late = run.receivers
    pulls = {replica: run.pull(replica) for replica in (first, second)}
    run.pause()
    answer = late.wait(run.pull(late, peers=[first.address], publishers=[]))
    run.check(answer)
    for replica, number in pulls.items():
        run.check(replica.wait(number))
    replicas.give_back(run.all)


@pytest.mark.parametrize("seed", range(7000, 7000 + 10))
def test_dead_puller_frees_its_slot(replicas: Replicas, seed: int) -> None:
    run = Run(replicas, 2, seed)
    doomed, other = run.receivers
    run.pull(doomed, peers=[])
    run.pause()
    doomed.signal(run.rng.choice([signal.SIGKILL, signal.SIGSTOP]))
    answer = other.wait(run.pull(other, peers=[]))
    run.check(answer)
    assert answer["seconds"] < 12, f"seed {seed}: a first lease is 10 s"
    doomed.signal(signal.SIGKILL)
    replicas.give_back(run.all)


def test_partial_replicas_wait_for_bytes_that_nobody_has_and_end_when_they_come(replicas: Replicas) -> None:
    run = Run(replicas, 2, 9)
    first, second = run.receivers
    number = first.tell(
        "pull", root=run.version["root"], text=run.version["text"], peers=[second.address], patience=20.0
    )
    time.sleep(0.3)
    assert first.ask("have", root=run.version["root"])["have"] == 0
    run.check(second.wait(run.pull(second)))
    run.check(first.wait(number))
    replicas.give_back(run.all)
