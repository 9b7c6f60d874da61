"""Weights in GPU memory: what UCX needs to move them from GPU to GPU, without a copy through the host.

Nothing in here has run on a GPU yet; `make test-gpu` is there for the first machine that has one.

- Staging is plain cudaMalloc memory. What PyTorch's allocator gives under `expandable_segments` is virtual memory that
  cuda_ipc cannot share: UCX then moves it through the host, at a small part of the rate, without a word. So buffers are
  refused unless the driver says that they can be shared.
- UCX knows nothing of streams. A copy into staging is waited for before it is sent, a copy out of it before it is
  received into again.
- cupy has no name for bf16 or fp8, so tensors are handed over as bytes.
- xxh3 has no kernel for a GPU. Bytes travel from GPU to GPU; a copy of each chunk comes to the host to be verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from weightsync.manifest import Chunk, Manifest, Tensor, chunk_spans, digest_of

REMEDY = "take expandable_segments out of PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, or install cupy"


class NotShareable(Exception):
    """GPU memory that other processes cannot map."""


def as_bytes(tensor: Any) -> Any:
    """A torch tensor's memory as one-dimensional uint8: as a cupy array by DLPack where cupy is, else as a tensor.

    Raises:
        ValueError: it is not contiguous. UCX would send whatever lies there.
    """
    flat = _flat(tensor)
    cupy = _cupy()
    return flat if cupy is None else cupy.from_dlpack(flat)


def pointer_of(array: Any) -> int:
    """The address in GPU memory."""
    return int(array.__cuda_array_interface__["data"][0])


def require_shareable(array: Any) -> None:
    """Ask the driver whether cuda_ipc can share this memory.

    Raises:
        NotShareable: it cannot.
    """
    from cuda.bindings import driver

    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
    status, capable = driver.cuPointerGetAttribute(attribute, pointer_of(array))
    if status != driver.CUresult.CUDA_SUCCESS:
        raise NotShareable(f"the driver knows nothing of this memory: {status.name}")
    if not capable:
        raise NotShareable(f"this GPU memory cannot be shared with other processes: {REMEDY}")


class DeviceMemory:
    """A shard in GPU memory, to publish from and to pull into. Call `ucx.start(gpu_memory=True)` before anything else.

    Args:
        tensor: torch, of any type, contiguous. Whatever writes to it must be over before it is published.

    Raises:
        NotShareable: other processes of this machine could not map it.
        ValueError: it is not contiguous.
    """

    def __init__(self, tensor: Any) -> None:
        self._bytes = _flat(tensor)
        self.size_bytes = int(self._bytes.numel())
        if self._bytes.is_cuda:
            require_shareable(self._bytes)

    def piece(self, offset: int, size_bytes: int) -> Any:
        return self._handed(self._bytes[offset : offset + size_bytes])

    def beside(self, size_bytes: int) -> Any:
        import torch

        return self._handed(torch.empty(size_bytes, dtype=torch.uint8, device=self._bytes.device))

    async def digest(self, piece: Any) -> str:
        host = await asyncio.to_thread(lambda: self._tensor(piece).cpu())  # waits for the copy
        return await asyncio.to_thread(digest_of, host.numpy().data)

    async def put(self, offset: int, piece: Any) -> None:
        data = self._tensor(piece)
        await self._done(self._bytes[offset : offset + data.numel()].copy_, data)

    async def clear(self, piece: Any) -> None:
        await self._done(self._tensor(piece).zero_)

    async def _done(self, work: Callable[..., object], *arguments: object) -> None:
        """Do something to the memory and wait until the device has done it: UCX knows nothing of streams."""
        import torch

        work(*arguments)
        if self._bytes.is_cuda:
            await asyncio.to_thread(torch.cuda.current_stream(self._bytes.device).synchronize)

    def _handed(self, tensor: Any) -> Any:
        """As UCX takes it: an array with an interface for its kind of memory."""
        return as_bytes(tensor) if tensor.is_cuda else tensor.numpy()

    def _tensor(self, piece: Any) -> Any:
        import torch

        return torch.as_tensor(piece, device=self._bytes.device)


async def seal(
    memory: DeviceMemory,
    *,
    epoch: int,
    step: int,
    shard: int = 0,
    tensors: Sequence[Tensor] = (),
    chunk_bytes: int = 16 << 20,
) -> Manifest:
    """`Manifest.of` for bytes that lie on a GPU."""
    chunks = [
        Chunk(offset, size, await memory.digest(memory.piece(offset, size)))
        for offset, size in chunk_spans(memory.size_bytes, chunk_bytes)
    ]
    return Manifest(epoch, step, shard, memory.size_bytes, tuple(chunks), tuple(tensors))


class Staging:
    """A reserved buffer in GPU memory, of plain cudaMalloc, through which tensors come and go.

    Raises:
        NotShareable: the allocator in use gives none that can be shared.
    """

    def __init__(self, size_bytes: int, device: int = 0) -> None:
        import torch

        cupy = _cupy()
        if cupy is None:
            self.array = torch.empty(size_bytes, dtype=torch.uint8, device=f"cuda:{device}")
            self._tensor = self.array
        else:
            with cupy.cuda.Device(device):
                plain = cupy.cuda.MemoryPointer(cupy.cuda.Memory(size_bytes), 0)  # beside cupy's pool
                self.array = cupy.ndarray((size_bytes,), cupy.uint8, plain)
            self._tensor = torch.from_dlpack(self.array)
        require_shareable(self.array)

    async def take_in(self, tensor: Any) -> Any:
        """Copy a tensor's bytes in; the part of `array` that holds them, ready to be sent.

        The copy is ordered after whatever the current stream does to the tensor.
        """
        data = _flat(tensor)
        await self._copy(self._tensor[: data.numel()], data)
        return self.array[: data.numel()]

    async def hand_out(self, tensor: Any) -> None:
        """Copy what was received out to a tensor; the buffer may be received into again after this."""
        data = _flat(tensor)
        await self._copy(data, self._tensor[: data.numel()])

    async def _copy(self, target: Any, data: Any) -> None:
        import torch

        with torch.cuda.device(target.device):
            target.copy_(data, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        await asyncio.to_thread(event.synchronize)


def _flat(tensor: Any) -> Any:
    import torch

    if not tensor.is_contiguous():
        raise ValueError("a tensor that is not contiguous has no bytes in a row")
    return tensor.detach().view(-1).view(torch.uint8)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        return None
    return cupy
