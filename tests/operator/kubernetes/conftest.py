"""What tests of the operator's clients share: an API server that has nothing yet, and the way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.operator.kubernetes.fake_api import FakeApi


@pytest_asyncio.fixture
async def empty_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    async with FakeApi().serving() as serving:
        (tmp_path / "kubeconfig").write_text(serving.kubeconfig())
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield serving
