"""Ctrl-C and SIGTERM end a job that runs here as its own end would: its processes go, and its memory is given back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
EXIT_STATUS = 130


class Stopped(Exception):
    """Somebody wanted it to stop; everything is closed."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """What `asyncio.run` does.

    Raises:
        Stopped: a signal came before the work had ended.
    """
    try:
        return asyncio.run(_cancelled_by_signals(work))
    except asyncio.CancelledError:
        raise Stopped("stopped; ledger and checkpoints are kept") from None


async def _cancelled_by_signals(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work
