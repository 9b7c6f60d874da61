"""How an agent reaches the operator's control endpoint: TLS under the operator's own CA, and a projected token."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


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
