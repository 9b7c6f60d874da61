"""The agent's side of the warm worker: keeps one ready and starts processes from it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robustrl.supervisor import memory_limit
from robustrl.supervisor.process import UNKILLABLE_SECONDS, Supervised, die_with_parent, ended, listen_to
from robustrl.warm_worker import MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)

FORK_SECONDS = 180.0
"""Loading everything for the first time, on a busy machine, takes most of this; a fork takes milliseconds."""
MAX_REQUEST_BYTES = 32 << 20
"""Of a command and its environment: several times what Linux lets a process begin with."""
EVERYTHING = "everything"
"""In the place of a module's name: fork when all that the warm worker loads is loaded."""
SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A process with threads cannot be forked safely."""


class WarmWorkerGone(Exception):
    """The warm worker has ended; the caller starts its process cold."""


def python_arguments(command: Sequence[str]) -> list[str] | None:
    """What follows the interpreter in `command`, or None when it is not a plain Python program."""
    if not command or not Path(command[0]).name.startswith("python"):
        return None
    arguments = list(command[1:])
    while arguments and arguments[0] == "-u":
        arguments.pop(0)
    if not arguments or (arguments[0].startswith("-") and arguments[0] != "-m"):
        return None
    return arguments


def for_training(modules: Sequence[str], script: str | None) -> list[str]:
    """Arguments of a warm worker for training processes and engines.

    Args:
        modules: to load besides torch and what the script imports.
    """
    return [*(("--script", script) if script else ()), *modules]


def for_program(module: str) -> list[str]:
    """Arguments of a warm worker for one program, of which the module is all that takes a while to load."""
    return ["--only", module]


class WarmWorkerClient:
    """One warm worker process. Start it once; fork from it as often as needed.

    Args:
        arguments: what it loads: `for_training` or `for_program`.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        self._ids = itertools.count()
        self._forks: dict[int, asyncio.Future[int]] = {}
        self._channel: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to load; `fork` waits until enough is loaded."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "robustrl.warm_worker", str(theirs.fileno()), *self._arguments,
            env={**os.environ, **SINGLE_THREADED}, pass_fds=[theirs.fileno()], preexec_fn=die_with_parent,
        )  # fmt: skip
        theirs.close()
        self._channel = ours
        self._listener = asyncio.create_task(self._listen(ours), name="warm-worker")

    def load_all(self) -> None:
        """Load now what only a trainer needs; until this is said, only what is asked for is loaded."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(b"{}")

    async def fork(self, arguments: Sequence[str], env: Mapping[str, str], after: str = EVERYTHING) -> Supervised:
        """Start `python ARGUMENTS` as a fork, once the module `after` is loaded.

        Raises:
            WarmWorkerGone: there is no warm worker to fork.
        """
        channel = self._channel
        if channel is None:
            raise WarmWorkerGone
        number, kills_before = next(self._ids), memory_limit.kills()
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forks[number] = started
        read_end, write_end = os.pipe()
        try:
            _ask(channel, number, {"argv": list(arguments), "env": dict(env), "after": after}, write_end)
            async with asyncio.timeout(FORK_SECONDS):
                pid = await started
        except (OSError, TimeoutError) as error:
            os.close(read_end)
            raise WarmWorkerGone from error
        except BaseException:
            os.close(read_end)
            if started.done() and not started.cancelled() and started.exception() is None:
                _end(started.result())
            raise
        finally:
            os.close(write_end)
        child = Supervised(pid, ended(pid), kills_before)
        child.pump = asyncio.create_task(listen_to(read_end, child), name=f"stderr-{pid}")
        return child

    async def _listen(self, channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(channel, MAX_MESSAGE_BYTES):
                self._hear(json.loads(data))
        except OSError as error:
            log.warning("warm worker: %s", error)
        finally:
            self._lost()

    def _hear(self, message: dict[str, int]) -> None:
        started = self._forks.pop(message["id"])
        if started.done():
            # Whoever asked has gone on: a trainer of an epoch that is over, an engine whose pod trains by now.
            _end(message["pid"])
        else:
            started.set_result(message["pid"])

    def _lost(self) -> None:
        self._channel = None
        for future in self._forks.values():
            if not future.done():
                future.set_exception(WarmWorkerGone())
                future.exception()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            try:
                await asyncio.wait_for(self._process.wait(), UNKILLABLE_SECONDS)
            except TimeoutError:
                log.warning("the warm worker, process %d, does not end though it was killed", self._process.pid)


def _ask(channel: socket.socket, number: int, request: Mapping[str, Any], stderr: int) -> None:
    """Ask for a fork. What it shall be goes in a file in memory: an environment may be larger than what a socket takes
    at once, and the worker reads nothing while it loads.

    Raises:
        OSError: there is no room for it.
    """
    text = json.dumps(request).encode()
    if len(text) > MAX_REQUEST_BYTES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    with open(os.memfd_create("fork"), "wb") as file:
        file.write(text)
        file.flush()
        socket.send_fds(channel, [json.dumps({"id": number}).encode()], [stderr, file.fileno()])


def _end(pid: int) -> None:
    """End a process that nobody waits for any more."""
    Supervised(pid, ended(pid), kills_before=0).kill()
