"""Operations that only UCX can end: what is waited for, and whose buffers stay."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest

from weightsync import inflight
from weightsync.inflight import NotLetGo, PeerGone, finish


class Buffer(bytearray):
    """One that can be watched."""


class Operation:
    """Stands where UCX stands: it ends when it likes, and closing its endpoint ends it."""

    def __init__(self, *, ends_when_closed: bool = True) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ends_when_closed = ends_when_closed
        self.closed = False
        self.alive = True

    def close(self) -> None:
        self.closed, self.alive = True, False
        if self.ends_when_closed:
            self.future.set_exception(OSError("closed"))

    async def run(self, *buffers: object, seconds: float = 5) -> None:
        await finish(self.future, *buffers, seconds=seconds, alive=lambda: self.alive, close=self.close)


@pytest.fixture(autouse=True)
def _nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "_in_flight", {})
    monkeypatch.setattr(inflight, "_cut_off", [])
    monkeypatch.setattr(inflight, "LET_GO_SECONDS", 0.05)


def watched() -> tuple[Buffer, Callable[[], bool]]:
    buffer = Buffer(16)
    reference = weakref.ref(buffer)

    def there() -> bool:
        gc.collect()
        return reference() is not None

    return buffer, there


async def test_what_ends_in_time_has_its_result() -> None:
    operation = Operation()
    asyncio.get_running_loop().call_later(0.01, operation.future.set_result, None)
    await operation.run()
    assert not operation.closed


async def test_an_error_is_passed_on_and_the_endpoint_left_to_the_caller() -> None:
    operation = Operation()
    operation.future.set_exception(OSError("reset"))
    with pytest.raises(OSError, match="reset"):
        await operation.run()
    assert not operation.closed


async def test_after_the_deadline_the_endpoint_is_closed() -> None:
    operation = Operation()
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        await operation.run(seconds=0.05)
    assert operation.closed


async def test_a_failed_endpoint_is_noticed_though_the_operation_never_ends() -> None:
    operation = Operation()
    operation.alive = False
    with pytest.raises(PeerGone):
        await operation.run(seconds=60)


async def test_cancelling_closes_the_endpoint_and_waits_for_the_operation() -> None:
    operation = Operation()
    waiting = asyncio.create_task(operation.run())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert operation.closed
    assert operation.future.done()


@pytest.mark.parametrize("ends", [True, False])
async def test_buffers_stay_until_the_operation_has_ended(ends: bool) -> None:
    operation = Operation(ends_when_closed=ends)
    buffer, there = watched()
    with pytest.raises(TimeoutError if ends else NotLetGo):
        await operation.run(buffer, seconds=0.01)
    del buffer
    assert there() is not ends


async def test_buffers_of_an_operation_that_the_loop_took_down_stay() -> None:
    operation = Operation(ends_when_closed=False)
    buffer, there = watched()
    with pytest.raises(NotLetGo):
        await operation.run(buffer, seconds=0.01)
    del buffer
    operation.future.cancel()
    await asyncio.sleep(0)
    assert there()
