"""What it costs to wait: connected to many, with a receive posted on each, and nothing arriving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from processes import processes
from table import Row

SOURCES = 15
SIZE = 1 << 20
SECONDS = 10.0
TARGET = 0.05


def measure(env: Mapping[str, str], seconds: float = SECONDS) -> Iterator[Row]:
    with processes([(), ()], env) as (source, puller):
        port = source.ask("listen")["port"]
        root = source.ask("hold", size=SIZE, chunk=SIZE)["root"]
        spent = puller.ask("wait", root=root, sources=[f"127.0.0.1:{port}"] * SOURCES, seconds=seconds)
    share = spent["cpu_seconds"] / spent["seconds"]
    yield Row(
        f"waiting on {SOURCES} connections", share, "of a core", limit=TARGET, limit_is="5 % of a core",
        ratio=share / TARGET, at_most=1,
    )  # fmt: skip
