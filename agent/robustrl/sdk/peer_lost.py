"""Which exceptions of a training process only say that somebody else is gone.

torch.distributed has no class of error for that: gloo raises RuntimeErrors that name its source files, NCCL one class
for everything. So whatever speaks of either counts, but for what is known to be a fault of this process's own, such as
a setting that cannot work: those hit every rank alike, and no other rank is to be looked for.
"""

from __future__ import annotations

import torch.distributed as dist

from robustrl.sdk.ledger import Fenced

_LOST_TEXTS = ("Connection closed by peer", "Connection reset by peer", "Connection refused", "gloo", "NCCL")
_OWN_TEXTS = (
    "ncclInvalidUsage",  # such as two ranks on one GPU; a rank that is gone is ncclRemoteError or ncclSystemError
    "no socket interface found",  # NCCL_SOCKET_IFNAME
    "Unable to find address for",  # GLOO_SOCKET_IFNAME
    "failed to listen on any local network address",  # the port is another program's
    "data type is not supported for NCCL",
    "Unsupported tensor data type for NCCL",
    "NCCL only supports CUDA tensors",
    "NCCL does not support",
    "with NCCL",  # "Cannot use ReduceOp.BAND with NCCL"
    "doesn't have NCCL built in",
    "no GPUs found",
)
"""As torch 2.11 to 2.15 and NCCL 2.2x word them. One that is worded anew counts as a lost peer, as all others do."""


def is_peer_lost(error: BaseException) -> bool:
    """Whether an exception only says that somebody else is gone, or that this epoch is over."""
    if isinstance(error, Fenced):
        return True
    if not isinstance(error, RuntimeError) or any(text in str(error) for text in _OWN_TEXTS):
        return False
    by_class = isinstance(error, dist.DistBackendError | dist.DistNetworkError | dist.DistStoreError)
    return by_class or any(text in str(error) for text in _LOST_TEXTS)
