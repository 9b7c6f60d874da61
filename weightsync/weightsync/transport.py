"""UCX by way of UCXX: the environment it needs, endpoints, and what of its behaviour must be guarded against.

- Cancelling a receive does not stop UCX from writing into its buffer. After a timeout the endpoint is aborted and
  the receive awaited until it raises; the buffer is not used again.
- A peer that hangs is never reported, so every wait has a deadline of its own.
- A completed send is complete only locally, and a forced close loses it: a source keeps an endpoint open until its
  peer closes it.
- A short message is accepted silently: sizes travel in frames, and digests are checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

log = logging.getLogger(__name__)

TCP_PROFILE = {
    "UCX_TLS": "tcp",
    # With error handling UCX copies in fragments of this size; the defaults cost two thirds of the rate.
    "UCX_TCP_TX_SEG_SIZE": "64K",
    "UCX_TCP_RX_SEG_SIZE": "128K",
    "UCX_WARN_UNUSED_ENV_VARS": "n",
    "UCX_LOG_LEVEL": "fatal",
    "UCX_KEEPALIVE_INTERVAL": "2s",
}
CONNECT_SECONDS = 10.0


class TransportError(Exception):
    """The connection failed, or the peer did not answer in time."""


class SourceRefused(TransportError):
    """The source is well and has not got what was asked for."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a source listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read the form HOST:PORT.

        Raises:
            ValueError: the text has another form.
        """
        host, colon, port = text.rpartition(":")
        if not (host and colon and port.isdecimal()):
            raise ValueError(f"{text!r} is no address: expected HOST:PORT")
        return cls(host, int(port))


def start() -> Any:
    """The ucxx module, initialised. The environment that the user set wins over the profile."""
    for name, value in TCP_PROFILE.items():
        os.environ.setdefault(name, value)
    # With futures a waiting coroutine costs nothing; without them it spins a core.
    os.environ.setdefault("UCXPY_ENABLE_PYTHON_FUTURE", "1")
    os.environ.setdefault("UCXPY_PROGRESS_MODE", "thread")  # the loop stays free
    if os.environ["UCX_TLS"] == TCP_PROFILE["UCX_TLS"]:
        return _without_cuda()
    import ucxx

    return ucxx


def _without_cuda() -> Any:
    """UCXX without its ways to a GPU, which TCP from host memory has no use for.

    They cost 33 MB in every process, and where there is a GPU a context in its memory, which is the user's.
    """
    hide = "pynvml" not in sys.modules
    if hide:
        sys.modules["pynvml"] = cast(ModuleType, None)  # so its import fails, and UCXX does without
    try:
        import ucxx
        from ucxx._lib_async import continuous_ucx_progress as progress
    finally:
        if hide:
            sys.modules.pop("pynvml", None)
    # Called when the progress thread starts; it would load all of cuda.core and make a context on device 0.
    progress._create_context = lambda: None
    return ucxx


def stop() -> None:
    """End UCXX's helper threads, which would otherwise keep the process from exiting."""
    import ucxx

    with contextlib.suppress(Exception):
        ucxx.stop_notifier_thread()


class Connection:
    """An endpoint whose every operation ends by a deadline, one way or the other."""

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint
        self.broken = False

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """Connect.

        Raises:
            TransportError: nobody answers there.
        """
        ucxx = start()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return cls(await ucxx.create_endpoint(address.host, address.port, connect_timeout=CONNECT_SECONDS))
        except Exception as error:  # UCXX raises many kinds, some of them not its own
            raise TransportError(f"{address}: {error or type(error).__name__}") from error

    async def send(self, data: Any, tag: int, seconds: float) -> None:
        """Send a contiguous buffer."""
        await self._guarded(lambda: self._endpoint.send(data, tag=tag), seconds)

    async def receive(self, buffer: Any, tag: int, seconds: float) -> None:
        """Receive into a buffer that nobody else may touch until this returns or raises."""
        await self._guarded(lambda: self._endpoint.recv(buffer, tag=tag), seconds)

    async def _guarded(self, operation: Callable[[], Awaitable[Any]], seconds: float) -> None:
        """Run a UCX operation; on timeout or cancellation abort the endpoint and wait until UCX lets go."""
        if self.broken:
            raise TransportError("the connection is closed")
        task = asyncio.ensure_future(operation())
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await self._let_go(task)
            raise
        if not done:
            await self._let_go(task)
            raise TransportError(f"no progress within {seconds:g} s")
        try:
            task.result()
        except Exception as error:
            self.abort()
            raise TransportError(str(error) or type(error).__name__) from error

    async def _let_go(self, task: asyncio.Future[Any]) -> None:
        self.abort()
        with contextlib.suppress(Exception):
            await asyncio.wait({task}, timeout=5)

    def abort(self) -> None:
        """Close at once. Whatever was in flight fails."""
        if self.broken:
            return
        self.broken = True
        with contextlib.suppress(Exception):
            self._endpoint.abort()

    async def close(self) -> None:
        """Close in order."""
        if self.broken:
            return
        self.broken = True
        with contextlib.suppress(Exception):
            await self._endpoint.close()
