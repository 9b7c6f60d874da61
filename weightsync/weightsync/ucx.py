"""Bringing UCXX up: light, quiet, and with a handshake that cannot corrupt memory."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import sys
from types import ModuleType
from typing import Any, cast

from weightsync import profiles
from weightsync.inflight import finish

log = logging.getLogger(__name__)

CLOSE_NANOSECONDS = 500_000_000
"""How long closing an endpoint may hold its caller. It takes less than a millisecond."""
_PEER_INFO = "QQ"
_started: Any = None


def start(*, gpu_memory: bool = False) -> Any:
    """The ucxx module, with this machine's profile in the environment. UCX itself starts when it is first used.

    Args:
        gpu_memory: weights lie in GPU memory, so that CUDA comes into the process. Asked for at the first call.
    """
    global _started
    if _started is None:
        name = profiles.apply(os.environ, gpu_memory=gpu_memory)
        _started = _import_ucxx() if profiles.uses_cuda(os.environ) else _without_cuda()
        _mend_handshake()
        log.info("weights travel by UCX, profile %s: %s", name, os.environ["UCX_TLS"])
    return _started


def stop() -> None:
    """End UCXX's helper threads, which would otherwise keep the process from exiting."""
    import ucxx

    with contextlib.suppress(Exception):
        ucxx.stop_notifier_thread()


def _import_ucxx() -> Any:
    import ucxx

    return ucxx


def _without_cuda() -> Any:
    """UCXX without its ways to a GPU, which host memory has no use for.

    They cost 33 MB in every process, and where there is a GPU a context in its memory, which is the user's.
    """
    hide = "pynvml" not in sys.modules
    if hide:
        sys.modules["pynvml"] = cast(ModuleType, None)  # so its import fails, and UCXX does without
    try:
        import ucxx
        from ucxx._lib_async import continuous_ucx_progress as progress
    finally:
        if hide:
            sys.modules.pop("pynvml", None)
    # Called when the progress thread starts; it would load all of cuda.core and make a context on device 0.
    progress._create_context = lambda: None
    return ucxx


def _mend_handshake() -> None:
    from ucxx._lib_async import application_context, listener

    application_context.exchange_peer_info = exchange_peer_info
    listener.exchange_peer_info = exchange_peer_info


async def exchange_peer_info(endpoint: Any, msg_tag: int, listener: bool, connect_timeout: float) -> dict[str, int]:
    """UCXX's handshake on the wire, in place of its own function of this name.

    That one frees the 16 bytes it receives into when it is cancelled or times out, and UCX, which cannot cancel the
    receive, writes to them when the peer's answer comes: cancelled connects killed the process within seconds.

    Raises:
        TimeoutError: the peer does not answer.
        Exception: the endpoint failed.
    """
    from ucxx._lib.arr import Array
    from ucxx._lib_async.utils import hash64bits

    ours = struct.pack(_PEER_INFO, msg_tag, hash64bits(msg_tag))
    theirs = bytearray(len(ours))

    async def turn(begin: Any, buffer: bytes | bytearray) -> None:
        array = Array(buffer)
        await finish(
            begin(array).wait(), array, buffer, seconds=connect_timeout,
            alive=lambda: bool(endpoint.alive), close=lambda: endpoint.close_blocking(CLOSE_NANOSECONDS),
        )  # fmt: skip

    turns: list[tuple[Any, bytes | bytearray]] = [(endpoint.stream_send, ours), (endpoint.stream_recv, theirs)]
    for begin, buffer in turns if listener else reversed(turns):
        await turn(begin, buffer)
    tag, checksum = struct.unpack(_PEER_INFO, theirs)
    if checksum != hash64bits(tag):
        raise ConnectionError("the peer does not speak UCXX")
    return {"msg_tag": tag, "checksum": checksum}
