"""Which errors of a rank accuse another one. The texts are those of torch 2.15, gloo and NCCL."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from robustrl.sdk.ledger import Fenced, LedgerRefused
from robustrl.sdk.peer_lost import is_peer_lost

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp"
NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77,"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Fenced("epoch is over"), id="the epoch is over"),
        pytest.param(RuntimeError(f"{GLOO}/pair.cc:561] Connection closed by peer [10.0.0.1]:7"), id="it was killed"),
        pytest.param(
            RuntimeError(f"{GLOO}/pair.cc:545] Read error [10.0.0.1]:7: Connection reset by peer"), id="it crashed"
        ),
        pytest.param(
            RuntimeError(f"{GLOO}/unbound_buffer.cc:78] Timed out waiting 960000ms for recv operation to complete"),
            id="it hangs",
        ),
        pytest.param(dist.DistNetworkError("Broken pipe"), id="the store is gone"),
        pytest.param(
            dist.DistNetworkError("The client socket has timed out after 960000ms while trying to connect"),
            id="nobody is at the rendezvous",
        ),
        pytest.param(
            dist.DistStoreError("Timed out after 961 seconds waiting for clients. 1/2 clients joined."),
            id="one never came",
        ),
        pytest.param(
            dist.DistBackendError(
                f"{NCCL} remote process exited or there was a network error, NCCL version 2.29.3\nncclRemoteError: A "
                "call failed possibly due to a network error or a remote process exiting prematurely."
            ),
            id="NCCL: it was killed",
        ),
        pytest.param(
            dist.DistBackendError(
                f"{NCCL} unhandled system error\nncclSystemError: System call (e.g. socket, malloc) or external "
                "library call failed or device error.\nLast error:\nsocketProgress: Connection closed by remote peer"
            ),
            id="NCCL: its machine is gone",
        ),
        pytest.param(dist.DistBackendError("NCCL communicator was aborted on rank 1."), id="NCCL: aborted"),
        pytest.param(RuntimeError("NCCL timeout in: ncclCommInitRank"), id="NCCL: it hangs"),
        pytest.param(dist.DistBackendError("an error that nobody knows yet"), id="in doubt a peer is gone"),
    ],
)
def test_a_lost_peer(error: Exception) -> None:
    assert is_peer_lost(error)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            dist.DistBackendError(
                f"{NCCL} invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.29.3\nncclInvalidUsage: "
                "This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected"
            ),
            id="two ranks on one GPU",
        ),
        pytest.param(
            dist.DistBackendError(
                f"{NCCL} internal error\nncclInternalError: Internal check failed.\nLast error:\nBootstrap : no socket "
                "interface found"
            ),
            id="NCCL_SOCKET_IFNAME names no interface",
        ),
        pytest.param(
            RuntimeError(f"{GLOO}/device.cc:84] ifa != nullptr. Unable to find address for: eth77"),
            id="GLOO_SOCKET_IFNAME names no interface",
        ),
        pytest.param(
            dist.DistNetworkError(
                "The server socket has failed to listen on any local network address. port: 29504, useIpv6: false, "
                "code: -98, name: EADDRINUSE, message: address already in use"
            ),
            id="the port is taken",
        ),
        pytest.param(
            RuntimeError("Input tensor data type is not supported for NCCL process group: UInt16"), id="a data type"
        ),
        pytest.param(RuntimeError("Unsupported tensor data type for NCCL"), id="a data type, by another path"),
        pytest.param(RuntimeError("Cannot use ReduceOp.BAND with NCCL"), id="an operation"),
        pytest.param(RuntimeError("NCCL only supports CUDA tensors, but got a tensor on cpu"), id="a tensor elsewhere"),
        pytest.param(
            RuntimeError("NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead."),
            id="a sparse tensor",
        ),
        pytest.param(RuntimeError("Distributed package doesn't have NCCL built in"), id="a torch without NCCL"),
        pytest.param(
            dist.DistBackendError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!"), id="no GPU"
        ),
        pytest.param(RuntimeError("CUDA out of memory"), id="no memory"),
        pytest.param(LedgerRefused("OutOfOrder: step 7"), id="the script's order of calls"),
        pytest.param(KeyError("NCCL_DEBUG"), id="a script's own error"),
    ],
)
def test_a_fault_of_its_own(error: Exception) -> None:
    assert not is_peer_lost(error)
