"""The warm worker: an interpreter with the user's imports loaded, from which processes start in milliseconds.

It imports torch and what the training script imports at its top level, makes one optimizer step on the CPU (the
first one imports a good deal more), and touches no device and starts no thread, so that forking it is safe. It forks
one process for each request on its socket and reports their ends.

Loading takes seconds, so it is done in stages, and requests are looked at between them: an inference engine is forked
as soon as torch is there, a trainer when everything is. What only a trainer needs is loaded once the agent says so (or
asks for a trainer), so that a rollout pod's engine does not start late for the sake of its standby.

Measured on two cores with gloo: two data-parallel workers made their first step 30 to 50 ms after the fork, against
more than 3 s from a cold start.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MAX_MESSAGE_BYTES = 256 * 1024


def top_level_imports(source: str) -> list[str]:
    """Modules that a script imports at its top level, in order. A script that does not parse has none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    modules: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules.append(node.module)
    return modules


Stage = Callable[[], None]


def loading(module: str) -> Stage:
    """A stage that imports a module. One that cannot be imported is for its own process to report."""

    def load() -> None:
        try:
            importlib.import_module(module)
        except Exception as error:
            print(f"warm worker: {module} is not preloaded: {error}", file=sys.stderr)

    return load


def first_step() -> None:
    """One optimizer step on the CPU, for the imports that it triggers."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()


class WarmWorker:
    """Serves fork requests from one socket until it is closed, and loads its stages meanwhile."""

    def __init__(self, channel: socket.socket, stages: Sequence[Stage]) -> None:
        self._channel = channel
        self._stages = deque(stages)
        self._waiting: list[tuple[dict[str, Any], int]] = []
        self._may_load_all = False
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()

    def serve(self) -> None:
        """Fork on request, report ends. Returns in a forked child never; in the parent when the agent is gone."""
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(0 if self._next_stage() else None):
                if key.fileobj is self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_read.recv(4096)
                elif not self._receive():
                    return
            self._reap()
            if self._next_stage():
                self._stages.popleft()()
            self._fork_what_can_be()

    def _send(self, message: dict[str, Any]) -> None:
        self._channel.send(json.dumps(message).encode())

    def _next_stage(self) -> bool:
        """Whether there is something to load now."""
        wanted = any(request["after"] not in sys.modules for request, _ in self._waiting)
        return bool(self._stages) and (self._may_load_all or wanted)

    def _receive(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._channel, MAX_MESSAGE_BYTES, 1)
        if descriptors:
            self._waiting.append((json.loads(data), descriptors[0]))
        elif data:
            self._may_load_all = True
        return bool(data)

    def _fork_what_can_be(self) -> None:
        for request, stderr in list(self._waiting):
            if request["after"] in sys.modules or not self._stages:
                self._waiting.remove((request, stderr))
                self._fork(request, stderr)

    def _fork(self, request: dict[str, Any], stderr: int) -> None:
        # Objects that exist now are left alone by the children's garbage collector, so their pages stay shared.
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            self._become(request, stderr)
        os.close(stderr)
        self._send({"id": request["id"], "pid": pid})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._send({"pid": pid, "code": os.waitstatus_to_exitcode(status)})

    def _become(self, request: dict[str, Any], stderr: int) -> None:
        """Turn this fork into the requested program. Never returns."""
        code = 1
        try:
            self._detach(stderr)
            os.environ.clear()
            os.environ.update(request["env"])
            code = run_python(request["argv"])
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _detach(self, stderr: int) -> None:
        from robustrl.supervisor.process import die_with_parent

        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for end in (self._channel, self._wake_read, self._wake_write):
            end.close()
        os.setsid()
        die_with_parent()
        os.dup2(stderr, 2)
        os.close(stderr)


def run_python(argv: Sequence[str]) -> int:
    """Run `script.py args` or `-m module args` as the interpreter would, in this process; its exit status."""
    try:
        if argv[0] == "-m":
            sys.argv = list(argv[1:])
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(argv)
            sys.path.insert(0, str(Path(argv[0]).resolve().parent))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as exit:
        return _status(exit.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def main() -> None:
    """`python -m robustrl.warm_worker FD [--script FILE] [MODULE ...]`."""
    descriptor, *arguments = sys.argv[1:]
    channel = socket.socket(fileno=int(descriptor))
    modules = ["robustrl.sdk.preload"]
    if arguments[:1] == ["--script"]:
        script = Path(arguments[1])
        sys.path.insert(0, str(script.resolve().parent))
        if script.is_file():
            modules += top_level_imports(script.read_text())
        arguments = arguments[2:]
    stages = [loading(module) for module in ("torch", *arguments, *modules)]
    WarmWorker(channel, [*stages, first_step]).serve()


if __name__ == "__main__":
    main()
