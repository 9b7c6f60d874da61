"""The same bytes for every peer, and how one run is told: lines on standard output, the last of the receiver's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

SEED = 7


def weights(size: int) -> np.ndarray:
    return np.frombuffer(bytearray(np.random.default_rng(SEED).bytes(size)), np.uint8)


def empty(size: int) -> np.ndarray:
    """A destination whose pages are in place."""
    return np.full(size, 1, np.uint8)


def ready(word: object) -> None:
    """Tell how this sender is reached."""
    print(f"READY {word}", flush=True)


def report(fetch: Callable[[], float], target: np.ndarray, runs: int) -> None:
    """Warm up once, then fetch so many times; print the seconds of each and whether the bytes are right."""
    fetch()
    target[:] = 0
    seconds = [fetch() for _ in range(runs)]
    print(json.dumps({"seconds": seconds, "exact": bool(np.array_equal(target, weights(len(target))))}), flush=True)
