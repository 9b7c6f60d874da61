"""`weightsync doctor`: which transport is active, what it moves, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version

from weightsync import profiles, selftest
from weightsync.profiles import Machine

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
UCXX_PACKAGES = ("ucxx-cu13", "ucxx-cu12", "ucxx")
WIDTH = 100


class State(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Something is slower than it might be, or worth knowing."""
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing looked at, and the remedy where there is one."""

    subject: str
    state: State
    says: str
    remedy: str = ""


@dataclass(frozen=True)
class Facts:
    """What the findings follow from."""

    machine: Machine
    environment: Mapping[str, str]
    ucxx: str
    """Its version; empty where it is not installed."""
    wheel_has_rdma: bool = False
    measured: selftest.Measured | None = None
    failure: str = ""
    """Why the self-test failed."""


def gather() -> Facts:
    """Look at this machine and run the self-test."""
    environment, ucxx = dict(os.environ), _ucxx_version()
    machine = profiles.probe()
    if not ucxx:
        return Facts(machine, environment, ucxx)
    rdma = profiles.wheel_ucx_has_rdma()
    try:
        return Facts(machine, environment, ucxx, rdma, measured=selftest.measure())
    except selftest.SelfTestFailed as error:
        return Facts(machine, environment, ucxx, rdma, failure=str(error) or "it ended without a word")


def examine(facts: Facts) -> list[Finding]:
    """The findings, in the order in which they matter."""
    return [
        _library(facts), *_active(facts), _settings(facts.environment), _cma(facts.machine), _rdma(facts),
        *_gpu(facts),
    ]  # fmt: skip


def _library(facts: Facts) -> Finding:
    if facts.ucxx:
        return Finding("UCXX", State.OK, facts.ucxx)
    remedy = "pip install 'robustrl[ucx]', of the CUDA generation that the installed torch has"
    return Finding("UCXX", State.PROBLEM, "not installed: weights cannot travel", remedy)


def _active(facts: Facts) -> Iterable[Finding]:
    if facts.measured is not None:
        rate = f"{facts.measured.bytes_per_second / 1e9:.2f} GB/s between two processes here, verified"
        active = facts.measured.active or "UCX does not say which"
        yield Finding("transport", State.OK, f"{active}, {rate}; loaded: {', '.join(facts.measured.loaded)}")
    elif facts.ucxx:
        remedy = "run `UCX_LOG_LEVEL=info python -m weightsync.selftest send`, and look at UCX_* in the environment"
        yield Finding("transport", State.PROBLEM, f"the self-test failed: {facts.failure}", remedy)


def _settings(environment: Mapping[str, str]) -> Finding:
    if transports := environment.get("UCX_TLS"):
        remedy = "unset UCX_TLS to have the profile chosen for this machine"
        return Finding("profile", State.NOTE, f"UCX_TLS={transports} is set, and nothing is chosen", remedy)
    return Finding("profile", State.OK, "chosen for this machine")


def _cma(machine: Machine) -> Finding:
    if not machine.cma_refused:
        return Finding("CMA", State.OK, "allowed: one copy between processes of this host and PID namespace")
    remedy = (
        "processes of one host need the same user, or CAP_SYS_PTRACE; kernel.yama.ptrace_scope below 2; and a seccomp "
        "profile that lets process_vm_readv through. Between pods there is none: TCP is right there"
    )
    return Finding("CMA", State.NOTE, f"refused ({machine.cma_refused}): TCP even within this host", remedy)


def _rdma(facts: Facts) -> Finding:
    devices = ", ".join(facts.machine.rdma_devices)
    if not devices:
        return Finding("RDMA", State.OK, "no device here")
    if facts.machine.rdma_ucx or facts.wheel_has_rdma:
        return Finding("RDMA", State.OK, f"{devices}, and a UCX that can use it")
    oldest = ".".join(map(str, profiles.OLDEST_SYSTEM_UCX))
    remedy = (
        f"the wheel's UCX has no RDMA: put a UCX {oldest} or newer with verbs into the image (HPC-X, conda, or built "
        f"with --with-verbs); it is then found, and {profiles.PREFER_SYSTEM_UCX}=true set"
    )
    return Finding("RDMA", State.PROBLEM, f"{devices}, and no UCX that can use it: weights go over TCP", remedy)


def _gpu(facts: Facts) -> Iterable[Finding]:
    if facts.machine.gpu:
        yield Finding("GPU", State.OK, "there is one")
    for name in ALLOCATOR_VARIABLES:
        if expandable_segments(facts.environment.get(name, "")):
            remedy = f"take expandable_segments out of {name}, or allocate what is sent by plain cudaMalloc (cupy)"
            says = f"{name} sets expandable_segments: UCX silently loses cuda_ipc for such memory, at 1/600 of the rate"
            yield Finding("GPU memory", State.PROBLEM, says, remedy)


def expandable_segments(setting: str) -> bool:
    """Whether an allocator setting of PyTorch's turns them on."""
    parts = (part.partition(":") for part in setting.replace(" ", "").split(","))
    return any(name == "expandable_segments" and value.lower() in ("true", "1") for name, _, value in parts)


def _ucxx_version() -> str:
    for package in UCXX_PACKAGES:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return ""


def render(findings: Iterable[Finding]) -> str:
    """A table for people; remedies below what they mend."""
    lines = []
    for finding in findings:
        head = f"{finding.state.value:<8}{finding.subject:<12}"
        lines += textwrap.wrap(finding.says, WIDTH, initial_indent=head, subsequent_indent=" " * 20)
        if finding.remedy:
            lines += textwrap.wrap(f"-> {finding.remedy}", WIDTH, initial_indent=" " * 20, subsequent_indent=" " * 23)
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for machines")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings. 1 if there is a problem, else 0."""
    findings = examine(gather())
    print(json.dumps([asdict(finding) for finding in findings], indent=1) if arguments.json else render(findings))
    return 1 if any(finding.state is State.PROBLEM for finding in findings) else 0
