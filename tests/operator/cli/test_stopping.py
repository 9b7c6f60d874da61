"""A signal ends what runs here through its own cleaning up, and is told apart from every other end."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from robustrl_operator.cli import stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_everything_be_closed(number: signal.Signals) -> None:
    closed = []

    async def job() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.01)
            closed.append(True)

    with pytest.raises(stopping.Stopped):
        stopping.run(job())
    assert closed


def test_without_a_signal_it_is_the_work_that_speaks() -> None:
    async def fine() -> int:
        return 3

    async def broken() -> int:
        raise ValueError("of its own")

    assert stopping.run(fine()) == 3
    with pytest.raises(ValueError, match="of its own"):
        stopping.run(broken())
