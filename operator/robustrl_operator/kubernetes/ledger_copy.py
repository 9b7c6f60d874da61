"""A copy of a job's ledger from its managers on a cluster, through the API server's proxy of pods.

Whoever asks needs the rights to read the RLJob, to list its pods and to `get` `pods/proxy`; nothing is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
from lightkube.config.client_adapter import Client as HttpClient
from lightkube.config.client_adapter import ConnectionParams
from lightkube.resources.core_v1 import Pod

from robustrl_api.job import RLJob
from robustrl_api.names import LABEL_JOB, LABEL_ROLE, Role
from robustrl_api.skew import read_stored
from robustrl_operator.kubernetes.api_client import sync_client
from robustrl_operator.kubernetes.resources import RLJobResource

DOWNLOAD_SECONDS = 60.0
"""The longest that nothing of it may arrive: the managers copy the file before they send it."""


class NoManagers(Exception):
    """No manager of the job hands out the ledger; the text says what to do."""


def fetch(name: str, namespace: str | None, target: Path) -> None:
    """Write the ledger of a job that is at work into a file.

    Raises:
        NoManagers: none of them is there, or none has answered.
        lightkube.ApiError: the API server refuses; there may be no such RLJob.
        httpx2.HTTPError, lightkube.ConfigError: there is no way to it.
    """
    client = sync_client()
    where = namespace or client.namespace
    found: Any = client.get(RLJobResource, name, namespace=where)
    port = read_stored(RLJob, found.to_dict()).spec.manager.port
    pods = client.list(Pod, namespace=where, labels={LABEL_JOB: name, LABEL_ROLE: Role.MANAGER.value})
    refusals = []
    with HttpClient(client.config, ConnectionParams(timeout=httpx2.Timeout(DOWNLOAD_SECONDS))) as http:
        for pod in sorted(str(pod.metadata.name) for pod in pods if pod.metadata):
            url = f"/api/v1/namespaces/{where}/pods/{pod}:{port}/proxy/v1/ledger"
            if not (refusal := _download(http, url, target)):
                return
            refusals.append(f"{pod}: {refusal}")
    raise NoManagers(_advice(f"{where}/{name}", refusals))


def _download(http: httpx2.Client, url: str, target: Path) -> str:
    """Why it was refused; nothing when it is there. A copy that breaks off is an error, not a ledger."""
    with http.stream("GET", url) as response, target.open("wb") as file:
        if response.status_code != httpx2.codes.OK:
            return f"{response.status_code} {response.read()[:300].decode(errors='replace')}"
        for block in response.iter_bytes():
            file.write(block)
    return ""


def _advice(job: str, refusals: list[str]) -> str:
    why = "; ".join(refusals) or "it has no manager pod, so it has ended or is suspended"
    return f"no manager of {job} hands out its ledger ({why}); mount its volume and give --ledger FILE"
