"""On which machine the operator was that led before: pods are missed there since it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from lightkube import AsyncClient
from tests.operator.kubernetes.fake_api import FakeApi

from robustrl_operator.kubernetes.lease import Predecessor
from robustrl_operator.kubernetes.predecessor import SilentNode, find

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
POD = "/api/v1/namespaces/sys/pods/operator-a"


@pytest_asyncio.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    async with FakeApi().serving() as serving:
        (tmp_path / "kubeconfig").write_text(serving.kubeconfig())
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        serving.put(
            POD, {"kind": "Pod", "metadata": {"name": "operator-a"}, "spec": {"nodeName": "n1", "containers": []}}
        )
        yield serving


async def test_its_node_is_silent_since_it_was(api: FakeApi) -> None:
    found = await find(AsyncClient(), "sys", Predecessor("operator-a", 3.5), NOW)
    assert found == SilentNode("n1", NOW - timedelta(seconds=3.5))


async def test_nothing_is_known_where_nobody_fell_silent_or_the_pod_is_gone(api: FakeApi) -> None:
    assert await find(AsyncClient(), "sys", None, NOW) is None
    assert await find(AsyncClient(), "sys", Predecessor("of yesterday", 3.5), NOW) is None
