"""How an agent reaches the operator's control endpoint: TLS under the operator's own CA, and a projected token."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import aiohttp

DEAD_SECONDS = 2
"""Without a sign of the operator's machine, not even from its kernel, after which a connection to it is given up."""
PROBE_SECONDS = 1


@dataclass(frozen=True, slots=True)
class ControlAccess:
    """Address and credentials.

    Attributes:
        url: base URL of the control endpoint.
        ca_file: bundle that its certificate is checked against; empty for plain HTTP on one machine.
        token_file: file of the token; empty where none is asked for.
    """

    url: str
    ca_file: str = ""
    token_file: str = ""

    def tls(self) -> ssl.SSLContext | bool:
        """For a call: what the certificate is checked against. The file is read each time, for an operator that was
        installed anew has another CA, and the pods outlive it.

        Raises:
            OSError: the CA's file is not there, or holds no certificates.
        """
        return _trusting(Path(self.ca_file).read_text()) if self.ca_file else True

    def session(self) -> aiohttp.ClientSession:
        """Connections that end when the operator's machine is dead, however long its answer may take while it lives."""
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=_watched_socket))

    def headers(self) -> dict[str, str]:
        """For a call with a JSON body. The token is read each time: the kubelet renews it.

        Raises:
            OSError: the token's file is not there.
        """
        token = Path(self.token_file).read_text().strip() if self.token_file else ""
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


@lru_cache(maxsize=1)
def _trusting(certificates: str) -> ssl.SSLContext:
    """The same context for the same CA, so that connections are kept alive."""
    return ssl.create_default_context(cadata=certificates)


def _watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One whose peer's kernel is asked for a sign of life while nothing comes from it. Every kept-alive connection to
    a dead machine ends so: else each would be tried in turn, for as long as a call may take."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", PROBE_SECONDS),
        ("TCP_KEEPINTVL", PROBE_SECONDS),
        ("TCP_KEEPCNT", DEAD_SECONDS // PROBE_SECONDS),
        ("TCP_USER_TIMEOUT", DEAD_SECONDS * 1000),
    ):
        if hasattr(socket, option):  # Linux has them all, others not
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
