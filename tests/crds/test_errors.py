"""No error is told with nothing behind the colon."""

from __future__ import annotations

import pytest

from robustrl_api.errors import describe


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(OSError("no route to host"), "no route to host", id="its text"),
        pytest.param(TimeoutError(), "TimeoutError", id="a timeout has none"),
        pytest.param(ConnectionResetError(""), "ConnectionResetError", id="an empty one"),
    ],
)
def test_what_is_said_of_an_error(error: Exception, text: str) -> None:
    assert describe(error) == text
