"""GPU memory as far as it can be looked at without a GPU: tensors as bytes. The rest is in tests/gpu."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from weightsync import Manifest
from weightsync.device import DeviceMemory, as_bytes, seal

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_a_tensor_is_its_bytes_whatever_its_type(dtype: str) -> None:
    kind = getattr(torch, dtype)
    pattern = torch.arange(64 * kind.itemsize, dtype=torch.uint8) % 2
    tensor = pattern.view(kind).reshape(8, 8)
    data = torch.as_tensor(as_bytes(tensor))
    assert data.dtype is torch.uint8
    assert data.tolist() == pattern.tolist()
    data[0] = 1 - data[0]
    assert tensor.view(-1).view(torch.uint8)[0] == data[0], "the same memory"


def test_bytes_that_do_not_lie_in_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        as_bytes(torch.zeros(4, 4).t()[1:])


def test_a_shard_of_tensors_is_sealed_as_its_bytes_would_be() -> None:
    tensor = torch.arange(300_000, dtype=torch.int64)
    sealed = asyncio.run(seal(DeviceMemory(tensor), epoch=2, step=3, chunk_bytes=256 * 1024))
    assert sealed == Manifest.of(tensor.numpy().tobytes(), epoch=2, step=3, chunk_bytes=256 * 1024)


def test_a_pull_from_tensors_into_tensors_is_exact_and_shares_its_memory() -> None:
    """The same code as for GPU memory, but for the copies between devices."""
    done = subprocess.run([sys.executable, "-c", PULL], capture_output=True, text=True, timeout=60)
    assert done.stdout == "exact\n", done.stderr


PULL = """
import asyncio, os, torch
from weightsync import Address, Source, pull
from weightsync.device import DeviceMemory, seal

async def main():
    published = torch.randn(1_000_000, generator=torch.Generator().manual_seed(1)).bfloat16()
    memory = DeviceMemory(published)
    manifest = await seal(memory, epoch=1, step=1, chunk_bytes=256 * 1024)
    source = Source()
    port = await source.start()
    source.hold(manifest, memory, publisher=True)
    pulled = torch.zeros_like(published)
    await pull(manifest, [Address("127.0.0.1", port)], DeviceMemory(pulled))
    print("exact" if torch.equal(pulled, published) else "other bytes", flush=True)

asyncio.run(main())
os._exit(0)
"""
