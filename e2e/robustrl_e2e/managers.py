"""What a job's managers say, from their own port: neither the operator nor the API server has to be there."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from robustrl.audit import record
from robustrl_api.names import Role
from robustrl_e2e.cluster import proxy
from robustrl_e2e.cluster_job import ClusterJob

ASK_SECONDS = 20.0


def curve_of(job: ClusterJob) -> list[dict[str, Any]]:
    """Committed steps; empty while the managers are away."""
    try:
        return list(json.loads(_ask(job, "curve")))
    except (OSError, ValueError):
        return []


def progress_of(job: ClusterJob, seconds: float = ASK_SECONDS) -> dict[str, Any]:
    """The step, the weights that are announced, and each engine with those it has.

    Raises:
        OSError: the managers do not answer, or not within so many seconds.
    """
    return dict(json.loads(_ask(job, "progress", seconds)))


def ledger_of(job: ClusterJob) -> record.Record:
    """What the ledger says now.

    Raises:
        OSError: the managers do not hand it out.
    """
    with tempfile.TemporaryDirectory(prefix="robustrl-ledger-") as folder:
        path = Path(folder) / "ledger.sqlite"
        path.write_bytes(_ask(job, "ledger"))
        return record.read(path)


def _ask(job: ClusterJob, what: str, seconds: float = ASK_SECONDS) -> bytes:
    for manager in (pod for pod in job.pods() if pod["role"] == Role.MANAGER and not pod["deleting"]):
        with proxy.DIRECT.open(f"http://{manager['address']}:8300/v1/{what}", timeout=seconds) as response:
            return bytes(response.read())
    raise ConnectionError("there are no managers now")
