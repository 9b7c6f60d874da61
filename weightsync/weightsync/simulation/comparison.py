"""The swarm beside other ways of spreading weights: a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weightsync.simulation import baselines
from weightsync.simulation.scenario import Result, Scenario, run


@dataclass(frozen=True)
class Row:
    scenario: Scenario
    result: Result

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.scenario.receivers, self.scenario.publishers, self.scenario.chunks


def compare(scenarios: Sequence[Scenario]) -> list[Row]:
    return [Row(scenario, run(scenario)) for scenario in scenarios]


def table(rows: Sequence[Row]) -> str:
    """Markdown. All times in S/B."""
    ways = "serial | whole-model relay | chain | **swarm, last / mean** | lower bound"
    lines = [f"| receivers | publishers | chunks | {ways} |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        n, k, chunks = row.sizes
        swarm = f"{row.result.worst():.2f} / {row.result.mean():.2f}"
        if row.result.unfinished:
            swarm += f" ({len(row.result.unfinished)} unfinished)"
        lines.append(
            f"| {n} | {k} | {chunks} | {baselines.serial(n, k):.0f} | {baselines.whole_model_relay(n, k):.0f} "
            f"| {baselines.chain(n, k, chunks):.2f} | **{swarm}** | {baselines.lower_bound(n, k, chunks):.2f} |"
        )
    return "\n".join(lines)


def faults(row: Row) -> str:
    """One line on a run with deaths and joiners."""
    result, scenario = row.result, row.scenario
    joiner = result.worst_joiner()
    late = f"; the last joiner needed {joiner:.2f} S/B from when it came" if joiner is not None else ""
    return (
        f"n={scenario.receivers}, k={scenario.publishers}, "
        f"{len(scenario.deaths)} deaths, {len(scenario.joins)} joiners: "
        f"the last receiver done after {result.worst():.2f} S/B{late}; "
        f"{100 * (result.bytes_sent_ratio - 1):.1f} % of the bytes came twice"
    )


def draw(rows: Sequence[Row], path: Path) -> None:
    """A PNG.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    rows = sorted(rows, key=lambda row: row.scenario.receivers)
    receivers = [row.scenario.receivers for row in rows]
    for label, style, values in _curves(rows):
        axis.plot(receivers, values, style, label=label, markersize=4)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_xlabel("receivers")
    axis.set_ylabel("until the last has the weights, in S/B")
    _ticks(axis, receivers)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, frameon=False)
    figure.suptitle("One publisher, equal links; simulated", fontsize=10)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _curves(rows: Sequence[Row]) -> list[tuple[str, str, list[float]]]:
    sizes = [row.sizes for row in rows]
    return [
        ("serial", "--", [baselines.serial(n, k) for n, k, _ in sizes]),
        ("whole-model relay (the paper)", "s-", [baselines.whole_model_relay(n, k) for n, k, _ in sizes]),
        ("pipelined chain", "^:", [baselines.chain(*size) for size in sizes]),
        ("leased chunk swarm", "o-", [row.result.worst() for row in rows]),
        ("lower bound", "k:", [baselines.lower_bound(*size) for size in sizes]),
    ]


def _ticks(axis: Any, receivers: Sequence[int]) -> None:
    axis.set_xticks(receivers, [str(n) for n in receivers])
    axis.set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axis.set_ylim(0.9, 16)
