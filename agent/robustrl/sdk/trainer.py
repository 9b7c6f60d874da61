"""`robustrl.trainer()`: entering and leaving an epoch."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from robustrl.exit_status import PEER_LOST_STATUS
from robustrl.sdk.agent_link import AgentLink
from robustrl.sdk.job import TrainerJob
from robustrl.sdk.ledger import Ledger
from robustrl.sdk.peer_lost import is_peer_lost
from robustrl.sdk.worker_config import WORKER_CONFIG_ENV, WorkerConfig

SHORTEST_COLLECTIVE_TIMEOUT = timedelta(minutes=10)
LEASE_MARGIN = timedelta(minutes=1)
"""By which the operator is first to end a peer whose phase outlives its lease: it knows which one that is."""


@contextlib.contextmanager
def trainer(backend: str | None = None) -> Iterator[TrainerJob]:
    """Join this epoch's trainers; leave them at the end of the block.

    The process group of all ranks is up inside the block, so DistributedDataParallel and FSDP work as usual.

    Args:
        backend: torch.distributed backend; NCCL where there is a GPU, else gloo.

    Raises:
        RuntimeError: the script was not started by a RobustRL agent.
    """
    job = _join(backend)
    try:
        yield job
    except BaseException as error:
        if is_peer_lost(error):
            traceback.print_exc()
            print("a peer is gone: waiting for the next epoch", file=sys.stderr, flush=True)
            # Not sys.exit: a process group with a dead peer may never finish its own clean-up.
            os._exit(PEER_LOST_STATUS)
        raise
    if dist.is_initialized():
        dist.destroy_process_group()


def _join(backend: str | None) -> TrainerJob:
    text = os.environ.get(WORKER_CONFIG_ENV)
    if text is None:
        raise RuntimeError(
            "this script was not started by a RobustRL agent; run it with `robustrl run rljob.yaml` or as an RLJob"
        )
    config = WorkerConfig.model_validate_json(text)
    link = AgentLink(config.agent_socket, config.local_rank)
    link.enter("Rendezvous")
    if config.world_size > 1:
        dist.init_process_group(
            backend or ("nccl" if torch.cuda.is_available() else "gloo"),
            init_method=f"tcp://{config.rendezvous}",
            rank=config.rank,
            world_size=config.world_size,
            timeout=collective_timeout(config),
        )
    link.enter("")
    return TrainerJob(config, link, Ledger(lambda: str(link.ask("manager")["url"]), config.epoch))


def collective_timeout(config: WorkerConfig) -> timedelta:
    """How long to wait for the other ranks. Each may honestly be in a phase until its lease has run out, as one that
    restores from slow storage or evaluates. A peer that is gone is found by its agent or by the operator, not by this.
    """
    return max(SHORTEST_COLLECTIVE_TIMEOUT, timedelta(seconds=config.phase_lease_seconds) + LEASE_MARGIN)
