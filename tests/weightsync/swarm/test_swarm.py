"""What the swarm promises, whatever happens: played in virtual time with schedules that hypothesis makes up.

- Each live replica ends with the exact weights, or waits for bytes that nobody alive has.
- No holder ever sends more transfers at a time than it has slots.
- Nobody starves: what can be had is had within a bounded time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, note, settings
from hypothesis import strategies as st

from weightsync.simulation.net import Weights
from weightsync.simulation.node import Node
from weightsync.simulation.scenario import Scenario, Swarm
from weightsync.swarm.config import SwarmConfig

CHUNKS = 12
PATIENCE_SECONDS = 120.0
"""Longest sum of waits in a row: leases, stalled sources found one after the other, rests after failures."""


@dataclass(frozen=True)
class Happening:
    time: float
    kind: str
    whom: int
    seconds: float


HAPPENINGS = st.lists(
    st.builds(
        Happening,
        st.floats(0, 6),
        st.sampled_from(
            [
                "die",
                "stall",
                "join",
                "corrupt",
                "publisher dies",
                "publisher stalls",
                "directory lost",
                "update",
                "epoch",
            ]
        ),
        st.integers(0, 20),
        st.floats(0.1, 30),
    ),
    max_size=8,
)


def happen(swarm: Swarm, what: Happening, number: int) -> None:
    receivers = [node for node in swarm.receivers if node.alive]
    publisher = swarm.publishers[what.whom % len(swarm.publishers)]
    someone = receivers[what.whom % len(receivers)] if receivers else None
    match what.kind:
        case "join":
            if swarm.directory is not None:  # without it nobody would know of whom to ask
                swarm.join()
        case "publisher dies":
            publisher.die()
        case "publisher stalls":
            stall(swarm, publisher, what.seconds)
        case "directory lost":
            lost, swarm.directory = swarm.directory, None
            if lost is not None:
                swarm.clock.after(what.seconds, setattr, swarm, "directory", type(lost)(10.0, swarm.rng))
        case "update":
            swarm.update(changed(swarm.weights, number, what.whom))
        case "epoch":
            for node in receivers:
                node.receive(node.drop)
            swarm.update(changed(swarm.weights, number, 10**6))
        case "die" if someone is not None:
            someone.die()
        case "stall" if someone is not None:
            stall(swarm, someone, what.seconds)
        case "corrupt" if someone is not None:
            someone.serving.corrupt = True


def stall(swarm: Swarm, node: Node, seconds: float) -> None:
    if node.alive and not node.stalled:
        node.stall(stalled=True)
        swarm.clock.after(seconds, lambda: node.alive and node.stall(stalled=False))


def changed(weights: Weights, number: int, chunks: int) -> Weights:
    """A new version in which some of the chunks are as before."""
    digests = tuple(
        f"{number + 2}/{chunk}" if chunk <= chunks else digest for chunk, digest in enumerate(weights.digests)
    )
    return replace(weights, root=f"v{number + 2}", digests=digests)


def honest(node: Node, weights: Weights) -> bool:
    return node.alive and not node.serving.corrupt and node.weights == weights


@settings(max_examples=60, deadline=None)
@given(
    happenings=HAPPENINGS,
    receivers=st.integers(1, 7),
    publishers=st.integers(1, 2),
    sources=st.integers(2, 6),
    slots=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
def test_every_live_replica_is_exact_or_waits_for_what_nobody_has(
    happenings: list[Happening], receivers: int, publishers: int, sources: int, slots: int, seed: int
) -> None:
    config = SwarmConfig(sources=sources, upload_slots=slots)
    scenario = Scenario(receivers, publishers, CHUNKS, transfer_seconds=2.0, seed=seed, config=config)
    swarm = Swarm(scenario)
    for number, what in enumerate(sorted(happenings, key=lambda each: each.time)):
        swarm.clock.at(what.time, happen, swarm, what, number)
    last = max([each.time + each.seconds for each in happenings], default=0.0)
    swarm.clock.run(last + 1.0)
    swarm.clock.run(last + PATIENCE_SECONDS, lambda: all(n.exact for n in swarm.receivers if n.alive))

    assert all(node.serving.most_at_once <= slots for node in swarm.nodes())
    somewhere = set()
    for node in swarm.nodes():
        if honest(node, swarm.weights):
            somewhere |= set(node.content)
    for node in swarm.receivers:
        if node.alive:
            note(f"{node.peer.name} has {sorted(node.content)}, others {sorted(somewhere)}")
            assert node.weights == swarm.weights
            right = dict(enumerate(swarm.weights.digests))
            assert node.content == {chunk: right[chunk] for chunk in node.content}
            assert set(node.content) >= somewhere, "it lacks what somebody alive has"


def test_trainer_dead_mid_pull_is_no_loss_once_its_bytes_are_out() -> None:
    """All that the publisher sent before it died reaches everybody."""
    for seed in range(20):
        swarm = Swarm(Scenario(6, chunks=CHUNKS, transfer_seconds=2.0, seed=seed))
        swarm.clock.at(1.2 + 0.1 * seed, swarm.publishers[0].die)
        swarm.clock.run(60.0)
        out = set().union(*(node.content for node in swarm.receivers))
        assert all(set(node.content) == out for node in swarm.receivers), f"seed {seed}"
        assert all(node.exact == (len(out) == CHUNKS) for node in swarm.receivers), f"seed {seed}"


def test_partial_weights_are_void_with_their_epoch() -> None:
    swarm = Swarm(Scenario(3, chunks=CHUNKS, transfer_seconds=2.0))
    swarm.clock.at(1.0, swarm.publishers[0].die)
    swarm.clock.run(2.0)
    node = swarm.receivers[0]
    assert node.content
    node.drop()
    swarm.clock.run(10.0)
    assert not node.content
    assert not node.serving.offers, "nothing of it is served"


def test_one_corrupt_relay_is_found_and_costs_no_more_than_its_strikes() -> None:
    config = SwarmConfig()
    swarm = Swarm(Scenario(6, chunks=64, transfer_seconds=2.0, config=config))
    swarm.receivers[0].serving.corrupt = True
    swarm.clock.run(60.0)
    name = swarm.receivers[0].peer.name
    assert all(node.exact for node in swarm.receivers)
    blamed = [node for node in swarm.receivers if node.strikes.total()]
    assert blamed, "the relay was never asked: the test shows nothing"
    for node in blamed:
        assert node.strikes.names(swarm.clock.now) <= {name}
        chunk = swarm.weights.chunk_bytes
        # Two strikes, and one chunk that was asked for before the second.
        assert node.bytes_in <= (64 + config.strikes + 1) * chunk


def test_one_stalled_source_costs_its_deadline_once() -> None:
    swarm = Swarm(Scenario(6, chunks=64, transfer_seconds=2.0))
    swarm.clock.at(0.7, lambda: swarm.receivers[0].stall(stalled=True))
    swarm.clock.run(60.0)
    for node in swarm.receivers[1:]:
        assert node.exact
        assert node.finished_at is not None
        assert node.finished_at < 2.0 * 1.5 + swarm.scenario.config.stall_seconds


def test_unchanged_chunks_are_carried_over_to_a_new_version() -> None:
    swarm = Swarm(Scenario(3, chunks=CHUNKS, transfer_seconds=2.0))
    swarm.clock.run(60.0, swarm.finished)
    before = [node.bytes_in for node in swarm.receivers]
    swarm.update(changed(swarm.weights, 0, 2))
    swarm.clock.run(120.0)
    assert all(node.exact for node in swarm.receivers)
    assert [node.bytes_in - b for node, b in zip(swarm.receivers, before, strict=True)] == [
        3 * swarm.weights.chunk_bytes
    ] * 3


def test_publisher_is_relieved_once_there_are_copies_enough() -> None:
    swarm = Swarm(Scenario(8, chunks=64, transfer_seconds=2.0))
    swarm.clock.run(60.0, swarm.finished)
    offer = swarm.publishers[0].serving.offers[swarm.weights.root]
    sent = 8 * 64 * swarm.weights.chunk_bytes
    assert sum(node.bytes_in for node in swarm.receivers) == sent, "nothing came twice"
    assert sum(offer.sent) < 1.5 * 64, "the relays did the most of it"
