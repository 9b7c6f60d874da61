"""Words between a puller and a source: frames over TCP, in order, each way.

Only bytes travel over UCX. A word costs a Python process a quarter of a millisecond of CPU by UCXX and a tenth of that
by a socket, a swarm says some forty words for every chunk, and a socket tells at once that its peer's process died.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import cast

from weightsync.transport import CONNECT_SECONDS, Address, TransportError

_LENGTH = struct.Struct("<I")
MOST_UNREAD_BYTES = 16 << 20
"""Words that a peer may leave unread before it counts as hung."""
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A machine that is gone says nothing; after 25 s its connections end here."""
LOW_DELAY = 0x10
"""In IP's type of service. Linux's default disciplines put such packets first."""


class Dialogue(asyncio.Protocol):
    """One end of a connection.

    Args:
        hear: called with each frame. Raises TransportError or ValueError for what nobody may say: that ends it.
        longest_bytes: of a frame to here.
        made: called once the connection is there.
    """

    def __init__(
        self,
        hear: Callable[[bytes], None],
        *,
        longest_bytes: int,
        made: Callable[[Dialogue], None] = lambda dialogue: None,
    ) -> None:
        self._hear, self._made, self._longest_bytes = hear, made, longest_bytes
        self._received = bytearray()
        self._problem: Exception | None = None
        self._over = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, address: Address, hear: Callable[[bytes], None], *, longest_bytes: int) -> Dialogue:
        """Connect.

        Raises:
            TransportError: nobody answers there.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, dialogue = await loop.create_connection(
                    lambda: cls(hear, longest_bytes=longest_bytes), address.host, address.port
                )
        except TimeoutError as error:
            raise TransportError(f"{address}: no answer within {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise TransportError(f"{address}: no connection ({error.strerror or error})") from error
        except ValueError as error:  # a name that no resolver takes
            raise TransportError(f"{address}: no address ({error})") from error
        return dialogue

    def say(self, frame: bytes) -> None:
        """Send a frame after those before it. Lost if the connection is over, which `wait` tells."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > MOST_UNREAD_BYTES:  # before this one, which may be longer by itself
            self.fail(TransportError("the peer does not listen"))
            return
        transport.write(_LENGTH.pack(len(frame)) + frame)

    async def wait(self) -> None:
        """Wait for the end: by this end, or in peace by the other.

        Raises:
            TransportError: the connection failed, or the peer does not speak our language.
        """
        await asyncio.shield(self._over)

    def fail(self, problem: Exception) -> None:
        """Close at once, for this reason."""
        self._problem = self._problem or problem
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close once everything said has left."""
        if self._transport is not None:
            self._transport.close()

    # What asyncio says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _tune(self._transport.get_extra_info("socket"))
        self._made(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            self._hear_all()
        except (TransportError, ValueError) as error:
            self.fail(error)

    def _hear_all(self) -> None:
        at, received = 0, self._received
        while len(received) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(received, at)
            if size > self._longest_bytes:
                raise TransportError(f"the peer begins a frame of {size} bytes; {self._longest_bytes} are allowed")
            begin, end = at + _LENGTH.size, at + _LENGTH.size + size
            if len(received) < end:
                break
            at = end
            self._hear(bytes(received[begin:end]))
        del received[:at]

    def connection_lost(self, error: Exception | None) -> None:
        problem = self._problem or error
        if self._over.done():
            return
        if problem is None:
            self._over.set_result(None)
        else:
            failed = problem if isinstance(problem, TransportError) else TransportError(str(problem))
            self._over.set_exception(failed)
            self._over.exception()  # whoever waits is told; nobody may


def _tune(link: socket.socket) -> None:
    """Let words pass the bytes that wait for the same network card, and notice a machine that is gone."""
    with contextlib.suppress(OSError):
        link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, LOW_DELAY)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
