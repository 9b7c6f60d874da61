"""How an agent reaches the operator's control endpoint: TLS under the operator's own CA, and a projected token."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp


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

    def connector(self) -> aiohttp.TCPConnector:
        """For an aiohttp session.

        Raises:
            OSError: the CA's file is not there.
        """
        if not self.ca_file:
            return aiohttp.TCPConnector()
        return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self.ca_file))

    def headers(self) -> dict[str, str]:
        """For a call with a JSON body. The token is read each time: the kubelet renews it.

        Raises:
            OSError: the token's file is not there.
        """
        token = Path(self.token_file).read_text().strip() if self.token_file else ""
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
