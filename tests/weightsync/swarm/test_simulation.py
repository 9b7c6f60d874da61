"""The simulator: what it promises about the swarm's speed, and that its links are what they say."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from weightsync.__main__ import main
from weightsync.simulation import baselines
from weightsync.simulation.network import Clock, Links
from weightsync.simulation.node import Node
from weightsync.simulation.scenario import RATE, Scenario, Swarm, run
from weightsync.swarm.config import SwarmConfig
from weightsync.swarm.peer import Peer


@pytest.mark.parametrize(
    ("scenario", "limit"),
    [
        pytest.param(Scenario(1), 1.01, id="one receiver: the link's rate"),
        pytest.param(Scenario(15, chunks=128), 1.15, id="15 receivers; whole-model relay needs 4"),
        pytest.param(Scenario(16, publishers=4), 1.15, id="four publishers"),
    ],
)
def test_swarm_is_near_the_lower_bound(scenario: Scenario, limit: float) -> None:
    result = run(scenario)
    assert not result.unfinished
    bound = baselines.lower_bound(scenario.receivers, scenario.publishers, scenario.chunks)
    assert bound <= result.worst() + 1e-6 <= limit
    assert result.bytes_sent_ratio < 1.01


def test_late_joiner_needs_little_more_than_its_own_link() -> None:
    result = run(Scenario(8, joins=(2.0, 8.0)))
    assert result.worst_joiner() is not None
    assert result.worst_joiner() <= 1.15  # type: ignore[operator]


@pytest.mark.parametrize("chunk_seconds", [0.2, 0.4, 1.4], ids=lambda seconds: f"{seconds} s a chunk")
def test_nobody_is_cut_off_on_a_link_no_slower_than_the_slowest_assumed(chunk_seconds: float) -> None:
    """Several transfers share the link from the first on, before anybody knows how long they take."""
    config = SwarmConfig(slowest_bytes_per_second=RATE / 1.2)
    seconds = 64 * chunk_seconds
    swarm = Swarm(Scenario(receivers=1, publishers=0, chunks=64, transfer_seconds=seconds, config=config))
    (puller,) = swarm.receivers
    for number in range(3):
        holder = Node(swarm.net, Peer(f"holder-{number}", f"host-{number}"), random.Random(number))
        holder.publish(swarm.weights)
        puller.hear_of({holder.peer: 0})
    swarm.clock.run(2 * seconds, lambda: puller.finished_at is not None)
    assert puller.finished_at is not None
    assert swarm.net.channels == 3, "each connected once"
    assert puller.finished_at < 1.01 * seconds
    assert puller.bytes_in < 1.01 * seconds * RATE


def test_deaths_cost_the_others_little() -> None:
    result = run(Scenario(12, deaths=(0.5, 1.0, 2.0)))
    assert len(result.finishes) == 9
    assert result.worst() <= 1.35


def test_the_same_seed_is_the_same_run() -> None:
    assert run(Scenario(6, chunks=16, seed=3)) == run(Scenario(6, chunks=16, seed=3))


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """Python orders a set of names differently in each process."""
    scenario = "Scenario(8, 3, transfer_seconds=25.6, config=SwarmConfig())"
    play = f"from weightsync.simulation.scenario import *; print(run({scenario}))"
    command = [sys.executable, "-c", play]
    seeds = ("1", "2", "3")
    runs = {subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed}, timeout=60) for seed in seeds}
    assert len(runs) == 1


@pytest.mark.parametrize(("n", "k", "wanted"), [(1, 1, 1), (3, 1, 2), (15, 1, 4), (63, 1, 6), (64, 8, 4), (16, 4, 3)])
def test_whole_model_relay_doubles_its_holders(n: int, k: int, wanted: int) -> None:
    assert baselines.whole_model_relay(n, k) == wanted


def test_links_are_shared_evenly_each_way() -> None:
    clock = Clock()
    links, ends = Links(clock, bytes_per_second=100.0), {}
    for source, target in (("a", "b"), ("a", "c"), ("b", "a"), ("d", "c")):
        links.start(source, target, 100, lambda s=source, t=target: ends.__setitem__(s + t, clock.now))
    clock.run(100.0)
    assert ends["ba"] == pytest.approx(1.0), "the other way round costs nothing"
    assert ends["ab"] == pytest.approx(2.0)
    assert ends["ac"] == pytest.approx(2.0)
    assert ends["dc"] == pytest.approx(2.0)


def test_the_command_prints_a_table_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "swarm.png"
    words = ["simulate", "--receivers", "1", "3", "--chunks", "16", "--deaths", "1", "--joiners", "1"]
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--picture", str(picture)])
    printed = capsys.readouterr().out
    assert "| 3 | 1 | 16 | 3 | 2 |" in printed
    assert "1 deaths, 1 joiners" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_more_receivers_than_it_can_play_are_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", "--receivers", "1001"])
