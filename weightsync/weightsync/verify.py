"""Checking what arrived, beside the loop: xxhash releases the interpreter lock."""

from __future__ import annotations

import asyncio

import numpy as np

from weightsync.manifest import digest_of

INLINE_BYTES = 512 * 1024
"""Digested in less time than it takes to hand it to a thread."""


async def matches(data: np.ndarray, digest: str) -> bool:
    """Whether these bytes have this xxh3-128."""
    if len(data) <= INLINE_BYTES:
        return digest_of(data.data) == digest
    return await asyncio.to_thread(digest_of, data.data) == digest
