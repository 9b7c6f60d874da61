"""`weightsync simulate`: the swarm in virtual time, beside other ways of spreading weights."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from weightsync.simulation.comparison import Row, compare, draw, faults, table
from weightsync.simulation.scenario import Scenario, run

MOST_RECEIVERS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--receivers", type=int, nargs="+", default=[1, 3, 7, 15, 31, 63], metavar="N")
    parser.add_argument("--publishers", type=int, default=1, metavar="K")
    parser.add_argument("--chunks", type=int, default=128, metavar="L")
    parser.add_argument("--seconds", type=float, default=4.0, help="for the weights over one link alone (S/B)")
    parser.add_argument("--latency", type=float, default=0.0002, help="seconds that a message takes")
    parser.add_argument("--deaths", type=int, default=0, help="receivers that die meanwhile, in one more run")
    parser.add_argument("--joiners", type=int, default=0, help="receivers that come later, in one more run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, metavar="PNG")


def simulate(arguments: argparse.Namespace) -> int:
    """Print a table, and draw it."""
    if not 1 <= min(arguments.receivers) <= max(arguments.receivers) <= MOST_RECEIVERS:
        print(f"between 1 and {MOST_RECEIVERS} receivers", file=sys.stderr)
        return 2
    scenarios = [_scenario(arguments, receivers) for receivers in arguments.receivers]
    rows = compare(scenarios)
    print(f"Simulated: equal links, S/B is {arguments.seconds:g} s, a message {arguments.latency:g} s. Times in S/B.\n")
    print(table(rows))
    if arguments.deaths or arguments.joiners:
        worse = _with_faults(scenarios[-1], arguments.deaths, arguments.joiners)
        print("\n" + faults(Row(worse, run(worse))))
    if arguments.picture is not None:
        draw(rows, arguments.picture)
    return 0


def _scenario(arguments: argparse.Namespace, receivers: int) -> Scenario:
    return Scenario(
        receivers, arguments.publishers, arguments.chunks, arguments.seconds, arguments.latency, seed=arguments.seed
    )


def _with_faults(scenario: Scenario, deaths: int, joiners: int) -> Scenario:
    """Deaths spread over the transfer, joiners in its middle."""
    span = scenario.transfer_seconds
    return replace(
        scenario,
        deaths=tuple(span * (n + 1) / (deaths + 1) for n in range(deaths)),
        joins=(span / 2,) * joiners,
    )
