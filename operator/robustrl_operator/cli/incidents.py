"""`robustrl incidents [JOB]`: what failed, why, what was done about it and how long it took."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
from lightkube import ApiError
from lightkube.core.exceptions import ConfigError

from robustrl_api.job import RLJob
from robustrl_api.skew import read_message, read_stored
from robustrl_api.status import RLJobStatus
from robustrl_operator.cli.readable import readable
from robustrl_operator.kubernetes.api_client import sync_client
from robustrl_operator.kubernetes.resources import RLJobResource
from robustrl_operator.local.run_folder import RunFolder
from robustrl_operator.report import incidents


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("incidents", help="what failed and what was done about it", description=__doc__)
    parser.add_argument("job", nargs="?", help="name of the RLJob; all of the namespace if left out")
    parser.add_argument("-n", "--namespace", help="namespace (default: the one of the kubeconfig's context)")
    parser.add_argument("--out", type=Path, help="folder of a local run (robustrl run) to read instead")
    parser.add_argument("--json", action="store_true", help="print JSON, one record an incident")
    parser.set_defaults(handle=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Print them; exit status 1 where they cannot be read."""
    try:
        found = list(_local(arguments.out) if arguments.out else _cluster(arguments.job, arguments.namespace))
    except (OSError, ValueError, ConfigError, ApiError, httpx2.HTTPError) as error:
        print(f"robustrl: incidents cannot be read: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps([incidents.record(name, i) for name, status in found for i in status.incidents], indent=1))
    else:
        print("\n\n".join(incidents.text(name, status.incidents) for name, status in found) or "no RLJobs found")
    return 0


def _local(folder: Path) -> Iterator[tuple[str, RLJobStatus]]:
    yield folder.name, read_message(RLJobStatus, RunFolder(folder).status.read_text())


def _cluster(job: str | None, namespace: str | None) -> Iterator[tuple[str, RLJobStatus]]:
    client = sync_client()
    if job:
        one: Any = client.get(RLJobResource, job, namespace=namespace)
        found: Iterable[RLJob] = [read_stored(RLJob, one.to_dict())]
    else:
        found = readable(client.list(RLJobResource, namespace=namespace))
    for each in found:
        yield f"{each.metadata.namespace}/{each.metadata.name}", each.status
