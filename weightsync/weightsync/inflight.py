"""Operations that UCX has begun. Only UCX can end them, and until then their buffers belong to it.

UCXX keeps no reference to a buffer that it sends from or receives into, and a cancelled receive goes on: UCX cannot
cancel a stream receive at all, nor a tag receive that has met its message. A buffer that is freed meanwhile is written
to all the same, which ends the process by a segmentation fault somewhere else, later. So an operation here is never
cancelled. Its endpoint is closed, which makes UCX end it, and its buffers stay referenced until it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

FIRST_LOOK_SECONDS = 0.02
LONGEST_LOOK_SECONDS = 1.0
LET_GO_SECONDS = 5.0

_in_flight: dict[asyncio.Future[Any], tuple[object, ...]] = {}
_cut_off: list[tuple[object, ...]] = []
"""Buffers of operations that an event loop took down with itself. UCX may still write to them, so they are kept."""


class PeerGone(ConnectionError):
    """The endpoint failed, and UCX did not end the operation by itself."""


class NotLetGo(Exception):
    """UCX has not ended the operation though its endpoint is closed: its buffers may be written to at any time."""


async def finish(
    operation: Awaitable[Any],
    *buffers: object,
    seconds: float,
    alive: Callable[[], bool],
    close: Callable[[], object],
) -> None:
    """Wait for an operation that UCX has begun.

    Args:
        buffers: all memory that UCX reads from or writes to for it.
        seconds: deadline; UCX has none of its own, and a peer that hangs is never reported.
        alive: whether its endpoint still is.
        close: close the endpoint, after which UCX lets go of the operation.

    Raises:
        TimeoutError: not finished within `seconds`.
        PeerGone: the endpoint has failed.
        NotLetGo: one of these two, and the buffers are lost. Not seen so far.
        Exception: whatever ended the operation. The endpoint is not closed then.
    """
    task = asyncio.ensure_future(operation)
    _in_flight[task] = buffers
    task.add_done_callback(_release)
    try:
        if await _ended(task, seconds, alive):
            task.result()
            return
    except asyncio.CancelledError:
        await _let_go(task, close)
        raise
    gone = not alive()
    await _let_go(task, close)
    if not task.done():
        raise NotLetGo(f"UCX holds on to a buffer {LET_GO_SECONDS:g} s after its endpoint was closed")
    if gone:
        raise PeerGone("the peer is gone")
    raise TimeoutError(f"no progress within {seconds:g} s")


async def _ended(task: asyncio.Future[Any], seconds: float, alive: Callable[[], bool]) -> bool:
    """Whether it ended in time, with its endpoint alive.

    An operation that is begun in the moment in which its endpoint fails is sometimes never ended, so the endpoint is
    looked at: soon, when that is likely, then less and less often.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    look = FIRST_LOOK_SECONDS
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        was_alive = alive()
        done, _ = await asyncio.wait({task}, timeout=min(look, left))
        if done:
            return True
        if not was_alive:
            return False
        look = min(LONGEST_LOOK_SECONDS, look * 2)
    return task.done()


async def _let_go(task: asyncio.Future[Any], close: Callable[[], object]) -> None:
    """Close the endpoint and wait until UCX has ended the operation. What has not ended then stays referenced."""
    with contextlib.suppress(Exception):
        close()
    await asyncio.wait({task}, timeout=LET_GO_SECONDS)


def _release(task: asyncio.Future[Any]) -> None:
    buffers = _in_flight.pop(task)
    if task.cancelled():
        _cut_off.append(buffers)
    else:
        task.exception()  # whoever waited has it; nobody may be left to ask
