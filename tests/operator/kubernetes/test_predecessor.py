"""On which machine the operator was that led before: pods are missed there since it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from lightkube import AsyncClient
from tests.operator.kubernetes.fake_api import FakeApi

from robustrl_operator.kubernetes.lease import Predecessor
from robustrl_operator.kubernetes.predecessor import SilentNode, find

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
POD = "/api/v1/namespaces/sys/pods/operator-a"


@pytest.fixture
def api(empty_api: FakeApi) -> FakeApi:
    empty_api.put(
        POD, {"kind": "Pod", "metadata": {"name": "operator-a"}, "spec": {"nodeName": "n1", "containers": []}}
    )
    return empty_api


async def test_its_node_is_silent_since_it_was(api: FakeApi) -> None:
    found = await find(AsyncClient(), "sys", Predecessor("operator-a", 3.5), NOW)
    assert found == SilentNode("n1", NOW - timedelta(seconds=3.5))


async def test_nothing_is_known_where_nobody_fell_silent_or_the_pod_is_gone(api: FakeApi) -> None:
    assert await find(AsyncClient(), "sys", None, NOW) is None
    assert await find(AsyncClient(), "sys", Predecessor("of yesterday", 3.5), NOW) is None
