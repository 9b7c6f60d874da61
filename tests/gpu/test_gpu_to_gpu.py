"""From GPU to GPU, between two processes on one card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("ucxx", reason="weights over UCX need the extra 'ucx'")
torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU of NVIDIA's"),
]

ROOT = Path(__file__).parents[2]
SIZE = 256 << 20
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def command(*words: object, extra: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "gpu_process.py"), *map(str, words)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**plain, "PYTHONPATH": str(ROOT / "weightsync"), **(extra or {})},
    )  # fmt: skip


@pytest.fixture(scope="module")
def transfer() -> dict[str, object]:
    sender = command("send", SIZE)
    try:
        assert sender.stdout
        receiver = command("receive", sender.stdout.readline().strip(), SIZE)
        output, errors = receiver.communicate(timeout=120)
        assert receiver.returncode == 0, errors
        found: dict[str, object] = json.loads(output.strip().splitlines()[-1])
        return found
    finally:
        sender.kill()
        sender.communicate()


def test_every_round_is_exact_though_the_streams_are_busy(transfer: dict[str, object]) -> None:
    assert transfer["exact"] is True


def test_cuda_ipc_is_there_and_far_faster_than_the_host_would_be(transfer: dict[str, object]) -> None:
    rate, limit = float(str(transfer["bytes_per_second"])), float(str(transfer["device_bytes_per_second"]))
    print(f"{rate / 1e9:.1f} GB/s from GPU to GPU; the device copies {limit / 1e9:.1f} GB/s; ratio {rate / limit:.2f}")
    assert "cuda_ipc" in str(transfer["transports"])
    assert rate > 20e9, "through the host it would be a few GB/s"


def test_a_verified_pull_from_gpu_to_gpu_is_exact() -> None:
    publisher = command("publish", SIZE)
    try:
        assert publisher.stdout
        puller = command("pull", *publisher.stdout.readline().split(), SIZE)
        output, errors = puller.communicate(timeout=120)
        assert puller.returncode == 0, errors
        found = json.loads(output.strip().splitlines()[-1])
        print(f"{found['bytes_per_second'] / 1e9:.1f} GB/s with verification")
        assert found["exact"] is True
    finally:
        publisher.kill()
        publisher.communicate()


def test_expandable_segments_are_refused_by_name() -> None:
    """Where cupy is, staging comes from cudaMalloc, and the allocator's setting does no harm."""
    sender = command("send", SIZE, extra=EXPANDABLE)
    try:
        assert sender.stdout
        line = sender.stdout.readline()
        if line.strip():
            pytest.importorskip("cupy", reason="without cupy it must have been refused")
            return
        _, errors = sender.communicate(timeout=60)
        assert "NotShareable" in errors
        assert "expandable_segments" in errors
    finally:
        sender.kill()
        sender.communicate()
