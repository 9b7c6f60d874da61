"""One source, one puller, one machine: goodput with verification beside what UCX itself moves in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

import perftest
from processes import Process, processes
from table import Row

SIZE = 4 << 30
CHUNK = 64 << 20
"""As large a chunk as there is: a chunk costs this library a few milliseconds of two cores whatever its size."""
RUNS = 5
TARGET = 0.9


def measure(name: str, env: Mapping[str, str], size: int = SIZE, chunk: int = CHUNK, runs: int = RUNS) -> Iterator[Row]:
    """Pulls and `ucx_perftest` take turns, so that both see the same machine."""
    with processes([(), ()], env) as (source, puller):
        port = source.ask("listen")["port"]
        held = source.ask("hold", size=size, chunk=chunk)
        ask = {"root": held["root"], "sources": [f"127.0.0.1:{port}"], "size": size}
        _pull(puller, ask)  # connections, pages and caches are warm from here on
        pairs = []
        for _ in range(runs):
            limit = perftest.rate(env, chunk, size)
            pulled = _pull(puller, ask)
            pairs.append((size / pulled["seconds"], limit))
        exact = puller.ask("check")["exact"]
    rates, limits = zip(*pairs, strict=True)
    yield Row(
        f"one pair, {name}, verified", statistics.median(rates) / 1e9, "GB/s",
        limit=statistics.median(limits) / 1e9, limit_is="ucx_perftest -t tag_bw -e",
        ratio=statistics.median(rate / limit for rate, limit in pairs), at_least=TARGET, exact=exact,
        runs=[[rate / 1e9, limit / 1e9] for rate, limit in pairs],
    )  # fmt: skip
    yield Row(
        f"memory above the weights, {name}", pulled["grown_bytes"] / chunk, "chunks", limit=2,
        limit_is="two staging buffers", ratio=pulled["grown_bytes"] / chunk, at_most=2,
    )  # fmt: skip


def _pull(puller: Process, ask: Mapping[str, object]) -> dict[str, float]:
    pulled: dict[str, float] = puller.ask("pull", **ask)
    if pulled["error"]:
        raise SystemExit(f"the pull failed: {pulled['error']}")
    return pulled
