"""Which transports are chosen, that the user's word wins, and that profiles of different machines meet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weightsync import cma_probe, profiles
from weightsync.profiles import Machine, apply, choose, uses_cuda

ROOT = Path(__file__).parents[2]
REFUSED = "Operation not permitted"


@pytest.mark.parametrize(
    ("machine", "gpu_memory", "name", "transports"),
    [
        pytest.param(Machine(REFUSED), False, "tcp", "tcp", id="nothing but a network"),
        pytest.param(Machine(), False, "cma", "tcp,cma", id="processes may read each other"),
        pytest.param(Machine(REFUSED, gpu=True), False, "tcp", "tcp", id="a GPU, and weights in host memory"),
        pytest.param(Machine(REFUSED, gpu=True), True, "tcp+cuda", "tcp,cuda_copy,cuda_ipc", id="weights on the GPU"),
        pytest.param(Machine(REFUSED), True, "tcp", "tcp", id="weights on a GPU that is not there"),
        pytest.param(Machine(REFUSED, ("mlx5_0",)), False, "tcp", "tcp", id="RDMA that no UCX here can use"),
        pytest.param(Machine(REFUSED, ("mlx5_0",), True), False, "tcp+rdma", "rc,tcp", id="RDMA"),
        pytest.param(
            Machine("", ("mlx5_0",), True, True), True, "cma+rdma+cuda", "rc,tcp,cma,cuda_copy,cuda_ipc", id="all"
        ),
    ],
)
def test_choice(machine: Machine, gpu_memory: bool, name: str, transports: str) -> None:
    profile = choose(machine, gpu_memory=gpu_memory)
    assert (profile.name, profile.environment["UCX_TLS"]) == (name, transports)
    assert uses_cuda(profile.environment) is ("cuda" in name)


def test_rdma_uses_every_nic_for_host_memory_and_one_for_a_gpu() -> None:
    machine = Machine(REFUSED, ("mlx5_0", "mlx5_1"), True, True)
    assert choose(machine).environment["UCX_MAX_RNDV_RAILS"] == "2"
    assert choose(machine, gpu_memory=True).environment["UCX_MAX_RNDV_RAILS"] == "1"


def test_the_users_transports_stay_and_the_rest_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "probe", lambda: pytest.fail("nothing is left to choose"))
    environment = {"UCX_TLS": "rc", "UCX_TCP_TX_SEG_SIZE": "32K"}
    assert apply(environment) == "user's own"
    assert environment["UCX_TLS"] == "rc"
    assert environment["UCX_TCP_TX_SEG_SIZE"] == "32K"
    assert environment["UCX_TCP_RX_SEG_SIZE"] == profiles.TCP["UCX_TCP_RX_SEG_SIZE"]


def test_no_word_on_transports_means_gpus_too() -> None:
    assert uses_cuda({})
    assert uses_cuda({"UCX_TLS": "all"})


def asked(program: str, *prefix: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "weightsync")}
    command = [*prefix, sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True).stdout


def test_cma_is_found_refused_by_trying_it() -> None:
    """A process that may not be dumped may be read by nobody without the capability for it."""
    program = (
        "import ctypes; ctypes.CDLL(None).prctl(4, 0)\nfrom weightsync import cma_probe; print(cma_probe.why_not())"
    )
    no_capabilities = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
    assert "not permitted" in asked(program, *no_capabilities)


def test_cma_is_found_allowed_where_nothing_forbids_it() -> None:
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    if yama.exists() and yama.read_text().strip() in "23":
        pytest.skip("yama forbids it here")
    if os.geteuid() != 0:
        pytest.skip("what forbids it to others than root is not all known here")
    assert cma_probe.why_not() == ""


PULL = """
import asyncio, os, sys
from tests.weightsync.source_process import sealed
from weightsync import Address, pull

async def main():
    manifest, data = sealed(1, 8 << 20, 1, 1)
    target = bytearray(len(data))
    await pull(manifest, [Address("127.0.0.1", int(sys.argv[1]))], memoryview(target))
    print("exact" if target == data else "another", flush=True)
    os._exit(0)

asyncio.run(main())
"""


@pytest.mark.parametrize(("source", "puller"), [("tcp", "tcp,cma"), ("tcp,cma", "tcp"), ("tcp,cma", "tcp,cma")])
def test_machines_with_different_profiles_meet(source: str, puller: str) -> None:
    pytest.importorskip("ucxx")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    environment = {**plain, "PYTHONPATH": f"{ROOT}:{ROOT / 'weightsync'}"}
    serves = [sys.executable, str(ROOT / "tests/weightsync/source_process.py"), "1", str(8 << 20), "1", "1"]
    process = subprocess.Popen(serves, stdout=subprocess.PIPE, text=True, env={**environment, "UCX_TLS": source})
    try:
        assert process.stdout
        pulls = [sys.executable, "-c", PULL, process.stdout.readline().strip()]
        done = subprocess.run(
            pulls, env={**environment, "UCX_TLS": puller}, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == "exact\n", done.stderr
    finally:
        process.kill()
        process.wait()
