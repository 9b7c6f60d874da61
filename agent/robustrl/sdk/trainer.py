"""`robustrl.trainer()`: entering and leaving an epoch."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

import torch.distributed as dist

from robustrl.exit_status import PEER_LOST_STATUS
from robustrl.sdk.agent_link import AgentLink
from robustrl.sdk.job import TrainerJob
from robustrl.sdk.ledger import Ledger
from robustrl.sdk.peer_lost import is_peer_lost
from robustrl.sdk.rendezvous import meet
from robustrl.sdk.worker_config import WORKER_CONFIG_ENV, WorkerConfig


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
        meet(config, backend)
    link.enter("")
    return TrainerJob(config, link, Ledger(lambda: str(link.ask("manager")["url"]), config.epoch))
