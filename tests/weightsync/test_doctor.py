"""What the doctor finds, what it advises, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from weightsync.doctor import Facts, Finding, State, examine, expandable_segments, render
from weightsync.profiles import Machine
from weightsync.selftest import Measured, active_in

WELL = Measured(3e9, "cma", ("cma", "tcp"))


def facts(machine: Machine | None = None, **changes: object) -> Facts:
    usual: dict[str, object] = {"environment": {}, "ucxx": "ucxx-cu13 0.52.0", "measured": WELL}
    return Facts(machine=machine or Machine(), **{**usual, **changes})  # type: ignore[arg-type]


def found(subject: str, given: Facts) -> Finding:
    return next(finding for finding in examine(given) if finding.subject == subject)


@pytest.mark.parametrize(
    ("given", "subject", "state", "says", "remedy"),
    [
        pytest.param(facts(), "transport", State.OK, "cma, 3.00 GB/s", "", id="all well"),
        pytest.param(facts(ucxx=""), "UCXX", State.PROBLEM, "not installed", "pip install", id="no UCXX"),
        pytest.param(
            facts(measured=None, failure="reset"), "transport", State.PROBLEM, "reset", "UCX_LOG", id="nothing moves"
        ),
        pytest.param(
            facts(Machine("Operation not permitted")), "CMA", State.NOTE, "not permitted", "CAP_SYS_PTRACE", id="no CMA"
        ),
        pytest.param(
            facts(Machine(rdma_devices=("mlx5_0",))), "RDMA", State.PROBLEM, "mlx5_0", "RAPIDS_LIBUCX", id="no RDMA UCX"
        ),
        pytest.param(
            facts(Machine(rdma_devices=("mlx5_0",), rdma_ucx=True)), "RDMA", State.OK, "mlx5_0", "", id="RDMA"
        ),
        pytest.param(
            facts(environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}), "GPU memory", State.PROBLEM,
            "expandable_segments", "cudaMalloc", id="expandable segments",
        ),
        pytest.param(facts(environment={"UCX_TLS": "tcp"}), "profile", State.NOTE, "=tcp", "unset", id="own TLS"),
    ],
)  # fmt: skip
def test_findings(given: Facts, subject: str, state: State, says: str, remedy: str) -> None:
    finding = found(subject, given)
    assert finding.state is state
    assert says in finding.says
    assert remedy in finding.remedy
    assert bool(finding.remedy) is (state is not State.OK), "whatever is not well has a remedy"


@pytest.mark.parametrize(
    ("setting", "on"),
    [
        ("expandable_segments:True", True),
        ("max_split_size_mb:64, expandable_segments : true", True),
        ("expandable_segments:False", False),
        ("max_split_size_mb:64", False),
        ("", False),
    ],
)
def test_expandable_segments(setting: str, on: bool) -> None:
    assert expandable_segments(setting) is on


def test_the_table_fits_a_terminal() -> None:
    text = render(examine(facts(Machine("Operation not permitted", ("mlx5_0",)))))
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("lines", "active"),
    [
        ("|  131041..inf | (?) rendezvous fragmented copy-in copy-out | tcp/lo |", "tcp"),
        ("|  131041..inf | rendezvous | tcp/lo |\n|  8K..inf | zero-copy read from remote | cma/memory |", "cma"),
        ("|  8K..131040 | zero-copy | cma/memory |", ""),
        ("", ""),
    ],
)
def test_active_transport_is_the_best_that_carries_large_messages(lines: str, active: str) -> None:
    assert active_in(lines) == active


@pytest.mark.parametrize(("extra", "status"), [({}, 0), ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, 1)])
def test_doctor_measures_and_its_status_tells(extra: dict[str, str], status: int) -> None:
    pytest.importorskip("ucxx")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("UCX", "PYTORCH"))}
    command = [sys.executable, "-m", "robustrl_operator.cli.main", "doctor", "--json"]
    done = subprocess.run(command, env={**plain, **extra}, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert findings["transport"]["state"] == "ok"
    assert "GB/s" in findings["transport"]["says"]
