"""Faults made on purpose: what is done to the process under the agent's care, or to the agent itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

from robustrl.checkpoint.loss import Loss
from robustrl.checkpoint.refusal import Refusal
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.proc_stat import descendants
from robustrl.supervisor.state import PodState
from robustrl_api.control import Harm, Strike, Struck

log = logging.getLogger(__name__)

SLOW_SECONDS = 15.0
SLOW_PERIOD_SECONDS = 0.1
SLOW_SHARE = 0.2
TOLD_SECONDS = 1.0
"""For the report that says that the strike was carried out, before nothing is said any more."""
AGENT_KILLED_STATUS = 137
"""What a container exits with whose first process was killed."""
LONGEST_SLEEP_SECONDS = 3600.0
FOR_EVER_SECONDS = float("inf")
STILL_SECONDS = {Harm.STAND_STILL: 20.0, Harm.CUT_OFF: 60.0, Harm.FALL_SILENT: FOR_EVER_SECONDS}
"""For how long everything in the container stands still."""
REFUSED_WRITES = {Harm.STORAGE_FULL: errno.ENOSPC, Harm.STORAGE_READ_ONLY: errno.EROFS}
REFUSED_SECONDS = 5.0
OF_THE_WHOLE_POD = frozenset({Harm.KILL_AGENT, *STILL_SECONDS, *REFUSED_WRITES})
"""These need no process under the agent's care."""

_SIGNALS = {
    Harm.KILL: signal.SIGKILL,
    Harm.LOSE_CHECKPOINT: signal.SIGKILL,
    Harm.STOP: signal.SIGSTOP,
    Harm.INTERRUPT: signal.SIGINT,
}


async def inflict(pid: int, harm: Harm) -> None:
    """Harm a process. Returns when that is done; `Slow` lasts for `SLOW_SECONDS`.

    Raises:
        OSError: there is no such process, or it may not be harmed.
        ValueError: this is no harm to a process.
    """
    if harm in _SIGNALS:
        os.kill(pid, _SIGNALS[harm])
    elif harm is Harm.STOP_BELOW:
        _stop_below(pid)
    elif harm is Harm.STARVE:
        _starve(pid)
    elif harm is Harm.SLOW:
        await _slow_down(pid)
    else:
        raise ValueError(f"{harm} is not done to a process")


def _stop_below(pid: int) -> None:
    below = descendants(pid)
    if not below:
        raise ProcessLookupError(errno.ESRCH, "it has no processes below it")
    for each in below:
        os.kill(each, signal.SIGSTOP)


def _starve(pid: int) -> None:
    """Half of the address space that it has: what it holds stays, and every request for more is refused."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() // 2
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


async def _slow_down(pid: int) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + SLOW_SECONDS
    try:
        while loop.time() < until:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(SLOW_PERIOD_SECONDS * (1 - SLOW_SHARE))
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(SLOW_PERIOD_SECONDS * SLOW_SHARE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def stand_still(seconds: float) -> None:
    """Stop every process below this one, and this one with them: whoever asks any of them gets no answer, as if the
    machine were gone. Nothing else runs in this thread meanwhile, no signal ends it, and everything goes on afterwards.

    A container's first process can neither stop nor kill itself by a signal, so it waits.
    """
    until = time.monotonic() + seconds
    below = descendants(os.getpid())
    for pid in below:
        _signal(pid, signal.SIGSTOP)
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_SLEEP_SECONDS))
    for pid in reversed(below):
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Striker:
    """Carries out each strike once, whatever becomes of the agent: what was begun stands in the pod's memory first.

    Args:
        process: the process to harm: one under the agent's care, if there is any.
        loss: what can take a checkpoint for lost when it is restored.
        storage: what can refuse the agent's writes to storage, if it has any.
    """

    def __init__(
        self,
        state: PodState,
        memory: PodMemory,
        process: Callable[[], int | None],
        loss: Loss,
        storage: Refusal | None = None,
    ) -> None:
        self._state, self._memory, self._process = state, memory, process
        self._loss, self._storage = loss, storage
        self._slowing: asyncio.Task[None] | None = None

    def take(self, strike: Strike | None) -> None:
        """Strike, unless it was done before."""
        if strike is None or (self._state.struck is not None and self._state.struck.id == strike.id):
            return
        error = "" if self._memory.last_strike() == strike.id else self._carry_out(strike)
        self._state.struck = Struck(id=strike.id, error=error)
        self._state.notify()

    def _carry_out(self, strike: Strike) -> str:
        """Why nothing was struck, or nothing."""
        if strike.harm not in set(Harm):
            return f"its agent knows no harm {strike.harm}: it is of another version than the operator"
        harm, pid = Harm(strike.harm), self._process()
        if pid is None and harm not in OF_THE_WHOLE_POD:
            return "no process runs in this pod now"
        if self._storage is None and harm in REFUSED_WRITES:
            return "it writes checkpoints to no storage: the job has no checkpoint.storage"
        log.warning("a fault is made on purpose: %s (%s)", harm, strike.id)
        self._memory.mark_strike(strike.id)
        if harm is Harm.KILL_AGENT:
            # SIGKILL would not reach the first process of a container from inside it.
            os._exit(AGENT_KILLED_STATUS)
        if self._storage is not None and harm in REFUSED_WRITES:
            self._storage.begin(REFUSED_WRITES[harm], REFUSED_SECONDS)
            return ""
        if harm in STILL_SECONDS:
            self._slowing = asyncio.create_task(self._stand_still(STILL_SECONDS[harm]), name="harm")
            return ""
        if harm is Harm.LOSE_CHECKPOINT:
            self._loss.begin()
        assert pid is not None
        self._slowing = asyncio.create_task(self._inflict(pid, harm), name="harm")
        return ""

    async def _stand_still(self, seconds: float) -> None:
        await asyncio.sleep(TOLD_SECONDS)
        stand_still(seconds)

    async def _inflict(self, pid: int, harm: Harm) -> None:
        try:
            await inflict(pid, harm)
        except OSError as error:
            log.warning("the fault %s came to nothing: %s", harm, error.strerror)

    async def close(self) -> None:
        """Whoever is being slowed down goes on."""
        if self._slowing is not None:
            self._slowing.cancel()
            await asyncio.gather(self._slowing, return_exceptions=True)
