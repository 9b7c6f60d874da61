"""Connections over UCX by way of UCXX, and what of its behaviour must be guarded against.

- Cancelling an operation does not end it, and freeing its buffer is fatal: see `inflight`.
- A peer that hangs is never reported, so every wait has a deadline of its own.
- A completed send is complete only locally, and a forced close loses it: a source keeps an endpoint open until its
  peer closes it.
- A short message is accepted silently: sizes travel in frames, and digests are checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from weightsync.inflight import NotLetGo, finish
from weightsync.ucx import CLOSE_NANOSECONDS, start, stop

__all__ = ["Address", "BufferLost", "Connection", "SourceRefused", "TransportError", "start", "stop"]

CONNECT_SECONDS = 10.0


class TransportError(Exception):
    """The connection failed, or the peer did not answer in time."""


class BufferLost(TransportError):
    """UCX may still write into the buffer, at any time. It must be given up, and whatever it is part of."""


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
        if not (host and colon and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ValueError(f"{text!r} is no address: expected HOST:PORT")
        return cls(host, int(port))


class Connection:
    """An endpoint whose every operation ends by a deadline, one way or the other."""

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint
        self.broken = False

    @classmethod
    async def open(cls, address: Address, seconds: float = CONNECT_SECONDS) -> Connection:
        """Connect. A port on which nobody listens is refused at once.

        Raises:
            TransportError: nobody answers there.
        """
        ucxx = start()
        try:
            async with asyncio.timeout(seconds):
                host = await _resolve(address)  # UCXX would block the loop for it
                return cls(await ucxx.create_endpoint(host, address.port, connect_timeout=seconds))
        except Exception as error:  # UCXX raises many kinds, some of them not its own
            why = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else f"no connection ({error})"
            raise TransportError(f"{address}: {why}") from error

    async def send(self, data: Any, tag: int, seconds: float) -> None:
        """Send a contiguous buffer."""
        self._check_open()
        await self._guarded(self._endpoint.send(data, tag=tag), data, seconds)

    async def receive(self, buffer: Any, tag: int, seconds: float) -> None:
        """Receive into a buffer that nobody else may touch until this returns or raises.

        Raises:
            TransportError: the connection is over. UCX writes into the buffer no more.
            BufferLost: it may.
        """
        self._check_open()
        await self._guarded(self._endpoint.recv(buffer, tag=tag), buffer, seconds)

    def _check_open(self) -> None:
        if self.broken:
            raise TransportError("the connection is closed")

    async def _guarded(self, operation: Awaitable[Any], buffer: Any, seconds: float) -> None:
        """Run a UCX operation. Whatever ends it early ends the connection, and waits until UCX lets go."""
        try:
            await finish(operation, buffer, seconds=seconds, alive=self._alive, close=self.abort)
        except NotLetGo as error:
            raise BufferLost(str(error)) from error
        except Exception as error:
            self.abort()
            raise TransportError(str(error) or type(error).__name__) from error

    def _alive(self) -> bool:
        return not self.broken and bool(self._endpoint.alive)

    def abort(self) -> None:
        """Close at once. Whatever was in flight fails."""
        if self.broken:
            return
        self.broken = True
        with contextlib.suppress(Exception):
            self._endpoint.abort(period=CLOSE_NANOSECONDS)

    async def close(self) -> None:
        """Close in order."""
        if self.broken:
            return
        self.broken = True
        with contextlib.suppress(Exception):
            await self._endpoint.close(period=CLOSE_NANOSECONDS)


async def _resolve(address: Address) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, family=socket.AF_INET, type=socket.SOCK_STREAM)
    return str(found[0][4][0])
