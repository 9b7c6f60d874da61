"""UCXX's helper threads would keep the test run from ending."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from weightsync import transport


@pytest.fixture(scope="session", autouse=True)
def _ucx_ends_with_the_tests() -> Iterator[None]:
    yield
    if "ucxx" in sys.modules:
        transport.stop()
