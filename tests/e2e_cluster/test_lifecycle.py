"""Labels and GPUs of a cluster that kind has made: its nodes come when they come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from robustrl_e2e.cluster import lifecycle, node, progress
from robustrl_e2e.cluster.layout import Cluster

CLUSTER = Cluster("x", 2, "kind")


class Registering:
    """An API server of which the nodes become known one patch after the other."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.patched: dict[str, Any] = {}

    def patch(self, path: str, body: Any) -> None:
        name = path.split("/")[4]
        if name not in self.known:
            self.known.append(name)
            raise ConnectionError(f"nodes {name!r} not found")
        self.patched[path] = body


def test_a_node_that_is_not_registered_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _seconds: None))
    api = Registering()
    lifecycle._offer(api, CLUSTER)  # type: ignore[arg-type]
    first, second = CLUSTER.node_names
    assert api.patched[f"/api/v1/nodes/{first}/status"]["status"]["capacity"] == {node.GPU: "1"}
    assert api.patched[f"/api/v1/nodes/{second}"] == {"metadata": {"labels": {node.POOL_LABEL: "cpu"}}}
