"""A child process under care: started cold or forked warm, its last words kept, its end seen at once."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from robustrl.supervisor import memory_limit
from robustrl_api.control import MESSAGE_CHARACTERS

log = logging.getLogger(__name__)

LAST_LINES = 30
STATUS_UNKNOWN = 1
"""What a process counts as that ended without its status being known: an end must never go unseen."""
NO_MEMORY = "the kernel killed it: the container has reached its memory limit"
UNKILLABLE_SECONDS = 30.0
"""A process that lives on for so long after SIGKILL waits in the kernel, for a device or a file server that hangs."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


_prctl: Any = ctypes.CDLL(None).prctl


def die_with_parent() -> None:
    """Run in a child before its program starts: no process may outlive the one that watches it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, as PID 1 of a container is anyway."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def ended(pid: int) -> asyncio.Future[int]:
    """The exit status of a child that asyncio did not start, seen by its pidfd as soon as it ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[int] = loop.create_future()
    descriptor = os.pidfd_open(pid)

    def reap() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:
            log.warning("process %d has ended, and somebody else has its status: taken as a failure", pid)
            code = STATUS_UNKNOWN
        if not future.done():
            future.set_result(code)

    loop.add_reader(descriptor, reap)
    return future


@dataclass
class Supervised:
    """A running child."""

    pid: int
    ended: asyncio.Future[int]
    """Its exit status; negative for a signal."""
    kills_before: int
    """For want of memory, in this container before it was started."""
    last_lines: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=LAST_LINES))
    pump: asyncio.Task[None] | None = None

    def kill(self) -> None:
        """End it now, with everything it started, which may have outlived it."""
        # The process ID of one that has ended may be another's by now; its group's is not while somebody is in it.
        for end in (os.killpg,) if self.ended.done() else (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)

    async def end(self) -> bool:
        """Kill it and wait until it is gone; False where that does not end it."""
        self.kill()
        done, _ = await asyncio.wait({self.ended}, timeout=UNKILLABLE_SECONDS)
        if done:
            await self.wait()
        return bool(done)

    async def wait(self) -> int:
        """Its exit status, once its last words are in."""
        code = await asyncio.shield(self.ended)
        if self.pump is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.pump), 0.5)
        if code == -signal.SIGKILL and memory_limit.kills() > self.kills_before:
            self.last_lines.append(NO_MEMORY)
        return code

    def last_words(self) -> str:
        """What it printed last to standard error, as much of it as a report has room for."""
        return "\n".join(self.last_lines)[-MESSAGE_CHARACTERS:]


async def listen_to(descriptor: int, child: Supervised) -> None:
    """Pass the child's standard error on to ours, and remember the end of it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while line := await _line(reader):
            child.last_lines.append(line.decode(errors="replace").rstrip())
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
    finally:
        transport.close()


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        return b"(line too long)\n"


async def start_cold(command: Sequence[str], env: Mapping[str, str]) -> Supervised:
    """Start a program the ordinary way.

    Raises:
        OSError, ValueError: it cannot be started at all, such as a command that does not exist.
    """
    kills_before = memory_limit.kills()
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=dict(env), stderr=write_end, start_new_session=True, preexec_fn=die_with_parent
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    ended: asyncio.Future[int] = asyncio.ensure_future(process.wait())
    child = Supervised(process.pid, ended, kills_before)
    child.pump = asyncio.create_task(listen_to(read_end, child), name=f"stderr-{process.pid}")
    return child
