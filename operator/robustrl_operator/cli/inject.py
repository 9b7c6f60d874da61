"""`robustrl inject KIND [TARGET]`: make a part of your own job fail, and see it survive.

TARGET is a pod's name, ROLE/INDEX (trainer/1), or `rank N`; left out, the last pod of the role that KIND strikes. The
RLJob has to allow it: spec.faultInjection.mode: Allowed. Exit status: 0 the job is over it, 1 it is not, or nothing was
struck, 2 the request makes no sense.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from lightkube import ApiError, Client
from lightkube.core.exceptions import ConfigError
from lightkube.types import PatchType
from pydantic import ValidationError

from robustrl_api.errors import describe
from robustrl_api.injection import Request
from robustrl_api.job import RLJob
from robustrl_api.names import ANNOTATION_INJECT
from robustrl_api.skew import read_message, read_stored
from robustrl_api.spec import InjectionMode
from robustrl_api.status import RLJobStatus
from robustrl_operator.cli.readable import readable
from robustrl_operator.faults.kind import FaultKind, kinds_text
from robustrl_operator.kubernetes.api_client import sync_client
from robustrl_operator.kubernetes.resources import RLJobResource, is_gone
from robustrl_operator.local.run_folder import BadRun, RunFolder
from robustrl_operator.report import injection

Read = Callable[[], RLJobStatus]
TIMEOUT_SECONDS = 600
REFUSALS = (401, 403)


class NoJob(Exception):
    """It is not clear which job is meant; the text says what to add."""


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "inject", help="make a part of a job fail on purpose", description=__doc__,
        epilog=f"kinds:\n{kinds_text()}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("kind", nargs="?", metavar="KIND", help="what shall fail; left out, the kinds are listed")
    parser.add_argument("target", nargs="*", metavar="TARGET", help="which pod: its name, ROLE/INDEX or rank N")
    parser.add_argument(
        "--job", help="name of the RLJob (default: the one that the pod is named after, or the only one)"
    )
    parser.add_argument("-n", "--namespace", help="namespace (default: the one of the kubeconfig's context)")
    parser.add_argument("--out", type=Path, help="instead: folder of a job that `robustrl run` is running")
    parser.add_argument("--no-wait", action="store_true", help="ask, and do not follow what becomes of it")
    parser.add_argument("--timeout", type=int, default=TIMEOUT_SECONDS, metavar="SECONDS", help="give up following")
    parser.set_defaults(handle=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Ask for the fault and follow it."""
    if arguments.kind is None:
        print(f"kinds of faults:\n{kinds_text()}")
        return 0
    if arguments.kind not in set(FaultKind):
        print(f"robustrl: there is no kind of fault {arguments.kind!r}; kinds:\n{kinds_text()}", file=sys.stderr)
        return 2
    try:
        request = _request(arguments)
        read = _ask_run(arguments.out, request) if arguments.out else _ask_cluster(arguments, request)
        print(f"asked for {request.kind} ({request.id})", flush=True)
        if arguments.no_wait:
            return 0
        return 0 if injection.follow(read, request.id, arguments.timeout) else 1
    except (NoJob, BadRun) as error:
        print(f"robustrl: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError, ConfigError, ApiError, httpx2.HTTPError) as error:
        print(f"robustrl: {error}", file=sys.stderr)
        return 1


def _request(arguments: argparse.Namespace) -> Request:
    try:
        return Request(id=secrets.token_hex(4), kind=arguments.kind, target=" ".join(arguments.target))
    except ValidationError as error:
        raise NoJob(f"the target cannot be read: {error.errors()[0]['msg']}") from error


def _ask_run(folder: Path, request: Request) -> Read:
    run = RunFolder(folder.resolve())
    job, _ = run.description()
    _check_allowed(job)
    temporary = run.request.with_suffix(".tmp")
    temporary.write_text(request.model_dump_json(by_alias=True))
    temporary.rename(run.request)
    return lambda: _read_run(run)


def _read_run(run: RunFolder) -> RLJobStatus:
    try:
        return read_message(RLJobStatus, run.status.read_text())
    except FileNotFoundError as error:
        raise injection.NotNow("the run has written none yet") from error


def _ask_cluster(arguments: argparse.Namespace, request: Request) -> Read:
    client = sync_client()
    job = _choose(client, arguments, request.target)
    _check_allowed(job)
    name, namespace = job.metadata.name, job.metadata.namespace
    patch = {"metadata": {"annotations": {ANNOTATION_INJECT: request.model_dump_json(by_alias=True)}}}
    client.patch(RLJobResource, name, patch, namespace=namespace, patch_type=PatchType.MERGE)
    return lambda: _read_now(client, name, namespace)


def _check_allowed(job: RLJob) -> None:
    """The operator refuses as well; this only says it before anything is asked."""
    if job.spec.fault_injection.mode is not InjectionMode.ALLOWED:
        raise NoJob(
            f"RLJob {job.metadata.name} does not allow faults on purpose: set spec.faultInjection.mode to Allowed"
        )


def _read(client: Client, name: str, namespace: str | None) -> RLJob:
    found: Any = client.get(RLJobResource, name, namespace=namespace)
    return read_stored(RLJob, found.to_dict())


def _read_now(client: Client, name: str, namespace: str | None) -> RLJobStatus:
    """An API server that is busy or away answers again; a job that is gone does not come back."""
    try:
        return _read(client, name, namespace).status
    except httpx2.HTTPError as error:
        if isinstance(error, ApiError) and (is_gone(error, name) or error.status.code in REFUSALS):
            raise
        raise injection.NotNow(describe(error)) from error


def _choose(client: Client, arguments: argparse.Namespace, target: str) -> RLJob:
    if arguments.job:
        return _read(client, arguments.job, arguments.namespace)
    jobs = list(readable(client.list(RLJobResource, namespace=arguments.namespace)))
    named = [job for job in jobs if target.startswith(f"{job.metadata.name}-")]
    chosen = max(named, key=lambda job: len(job.metadata.name)) if named else jobs[0] if len(jobs) == 1 else None
    if chosen is None:
        raise NoJob(
            f"say which with --job: {', '.join(job.metadata.name for job in jobs)}" if jobs else "no RLJob here"
        )
    return chosen
