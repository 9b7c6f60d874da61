"""A small client of the cluster's API server, enough to set the cluster up and to look at it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Api:
    """Calls one API server with the credentials of a kubeconfig (a token or a client certificate).

    Raises `OSError` where the server cannot be reached, `urllib.error.HTTPError` (an OSError) where it refuses.
    """

    def __init__(self, kubeconfig: Path, timeout: float = 10.0) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        self._token: str | None = user.get("token")
        self._timeout = timeout
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        if "client-certificate-data" in user:
            self._load_client_certificate(user)

    def get(self, path: str) -> Any:
        """GET, decoded."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """GET, as text: /readyz, logs, a Service's proxy."""
        return self._call("GET", path, None, "").decode()

    def post(self, path: str, body: Any) -> Any:
        return json.loads(self._call("POST", path, body, "application/json"))

    def patch(self, path: str, body: Any, kind: str = MERGE_PATCH) -> Any:
        return json.loads(self._call("PATCH", path, body, kind))

    def apply(self, path: str, body: Any) -> Any:
        """Server-side apply of one object; `path` is the object's own."""
        return self.patch(f"{path}?fieldManager=robustrl-cluster&force=true", body, APPLY)

    def delete(self, path: str) -> Any:
        return json.loads(self._call("DELETE", path, None, ""))

    def missing_ready(self) -> str:
        """What keeps the API server from being ready, or ""."""
        try:
            return "" if self.text("/readyz") == "ok" else "not ready"
        except OSError as error:
            return str(error)

    def _call(self, method: str, path: str, body: Any, content_type: str) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data=data, method=method)
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        if data is not None:
            request.add_header("Content-Type", content_type)
        # An explicit opener: the API server is never behind the proxy that the environment may name.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)
        )
        try:
            with opener.open(request, timeout=self._timeout) as response:
                content: bytes = response.read()
                return content
        except http.client.HTTPException as error:
            raise ConnectionError(f"the API server's answer is cut off: {error!r}") from error

    def _load_client_certificate(self, user: dict[str, str]) -> None:
        """The ssl module reads certificates from files only."""
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder) / "crt", Path(folder) / "key"
            for path, kind in zip(paths, ("certificate", "key"), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(user[f"client-{kind}-data"]))
            self._tls.load_cert_chain(*paths)


def node_is_ready(node: dict[str, Any]) -> bool:
    """Whether the Ready condition of a Node object is True."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def describe(error: OSError) -> str:
    """The API server's own words about a refusal, where there are any."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code}: {error.read().decode(errors='replace')[:300]}"
    return str(error)
