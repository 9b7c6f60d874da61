"""How fast weights get there, each figure beside its limit in the same run: `python bench/weights [PART ...]`.

Pulls and `ucx_perftest` take turns on the same machine; figures are medians. Many receivers run in network namespaces
of their own, each NIC limited to the same rate (root and iproute2). Writes the table as JSON, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import network
import pair
import side_by_side
import spread
import virtual
import waiting
from table import Row, lines

from weightsync import profiles

TCP = {"UCX_TLS": "tcp", **profiles.TCP}
CMA = {"UCX_TLS": "tcp,cma", **profiles.TCP, **profiles.CMA}

Part = Callable[[int], Iterator[Row]]
PARTS: dict[str, Part] = {
    "pair-tcp": lambda runs: pair.measure("tuned TCP", TCP, runs=runs),
    "pair-cma": lambda runs: pair.measure("CMA", CMA, runs=runs),
    "peers": lambda runs: side_by_side.measure({"tuned TCP": TCP, "CMA": CMA}, runs),
    "waiting": lambda _: waiting.measure(TCP),
    "death": lambda runs: spread.measure_death(TCP, runs),
    "late-joiner": lambda runs: spread.measure_late_joiner(TCP, runs),
    "swarm": lambda runs: spread.measure_swarm(TCP, runs=runs),
    "virtual": virtual.measure,
    "relay": lambda runs: spread.measure_relay(TCP, runs=runs),
}
NEED_NETWORK = {"death", "late-joiner", "swarm", "relay"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--runs", type=int, default=5, help="of each figure (default 5)")
    parser.add_argument("--out", type=Path, default=Path("out/bench-weights.json"))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    try:
        rows.extend(measured(arguments.parts or list(PARTS), arguments.runs))
    finally:
        # What was measured before a failure, or before somebody had enough, took its time too.
        tell(rows, arguments.out)
    return 1 if any(row.met is False for row in rows) else 0


def tell(rows: list[Row], out: Path) -> None:
    """Print the table, and write it."""
    print("\n" + "\n".join(lines(rows)) + "\n" + machine())
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=1))


def measured(parts: list[str], runs: int) -> Iterator[Row]:
    why_not = network.why_not()
    for part in parts:
        if part in NEED_NETWORK and why_not:
            print(f"{part}: left out, {why_not}", file=sys.stderr)
            continue
        print(f"{part} ...", end=" ", flush=True, file=sys.stderr)
        for row in PARTS[part](runs):
            print(f"{row.what}: {row.value:.3g} {row.unit}", file=sys.stderr)
            yield row


def machine() -> str:
    """Where this was measured, and how busy it was."""
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, load {load:.1f} at the end, {platform.release()}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main())
