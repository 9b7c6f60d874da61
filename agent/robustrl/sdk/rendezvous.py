"""Meeting the other ranks of an epoch.

All ranks start at once, and rank 0 listens a few milliseconds sooner or later than the others ask for it. torch's store
asks again after half a second and more where it is later, so the others look for it themselves, far more often.
"""

from __future__ import annotations

import random
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from robustrl.sdk.worker_config import WorkerConfig

SHORTEST_COLLECTIVE_TIMEOUT = timedelta(minutes=10)
LEASE_MARGIN = timedelta(minutes=1)
"""By which the operator is first to end a peer whose phase outlives its lease: it knows which one that is."""
LOOK_SECONDS = (0.01, 0.2)
"""Between two looks for rank 0, from the first on; a thousand ranks do not drown one that is long in coming."""
CONNECT_SECONDS = 3.0


def meet(config: WorkerConfig, backend: str | None) -> None:
    """Bring up the process group of all ranks.

    Args:
        backend: of torch.distributed; NCCL where there is a GPU, else gloo, unless given.

    Raises:
        torch.distributed.DistError: some rank does not come within `collective_timeout`.
    """
    timeout = collective_timeout(config)
    if config.rank != 0:
        await_rank_0(config.rendezvous, timeout)
    dist.init_process_group(
        backend or ("nccl" if torch.cuda.is_available() else "gloo"),
        init_method=f"tcp://{config.rendezvous}",
        rank=config.rank,
        world_size=config.world_size,
        timeout=timeout,
    )


def collective_timeout(config: WorkerConfig) -> timedelta:
    """How long to wait for the other ranks. Each may honestly be in a phase until its lease has run out, as one that
    restores from slow storage or evaluates. A peer that is gone is found by its agent or by the operator, not by this.
    """
    return max(SHORTEST_COLLECTIVE_TIMEOUT, timedelta(seconds=config.phase_lease_seconds) + LEASE_MARGIN)


def await_rank_0(rendezvous: str, timeout: timedelta) -> None:
    """Return once somebody listens at HOST:PORT, or when the time is over: what is wrong then is the store's to say."""
    host, _, port = rendezvous.rpartition(":")
    deadline = time.monotonic() + timeout.total_seconds()
    delay, longest = LOOK_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except OSError:
            time.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(longest, 1.5 * delay)
        else:
            return
