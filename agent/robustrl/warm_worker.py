"""The warm worker: an interpreter with the user's imports loaded, from which processes start in milliseconds.

It imports torch and what the training script imports at its top level, makes one optimizer step on the CPU (the
first one imports a good deal more), and touches no device and starts no thread, so that forking it is safe. It forks
one process for each request on its socket.

Loading takes seconds, so it is done in stages, and requests are looked at between them: an inference engine is forked
as soon as torch is there, a trainer when everything is. What only a trainer needs is loaded once the agent says so (or
asks for a trainer), so that a rollout pod's engine does not start late for the sake of its standby.

The managers have one too, with their own imports and nothing else.

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
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MAX_MESSAGE_BYTES = 4096


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
        self._agent = os.getppid()

    def serve(self) -> None:
        """Fork on request. Returns in a forked child never; in the parent when the agent is gone."""
        selector = selectors.DefaultSelector()
        selector.register(self._channel, selectors.EVENT_READ)
        while True:
            if selector.select(0 if self._next_stage() else None) and not self._receive():
                return
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
        data, descriptors, _, _ = socket.recv_fds(self._channel, MAX_MESSAGE_BYTES, 2)
        if descriptors:
            stderr, request = descriptors
            self._waiting.append((json.loads(data) | _read(request), stderr))
        elif data:
            self._may_load_all = True
        return bool(data)

    def _fork_what_can_be(self) -> None:
        for request, stderr in list(self._waiting):
            if request["after"] in sys.modules or not self._stages:
                self._waiting.remove((request, stderr))
                self._fork(request, stderr)

    def _fork(self, request: dict[str, Any], stderr: int) -> None:
        """Fork twice, so that the process becomes the agent's own child.

        The agent sees its end at once, which this interpreter, busy importing, might not for seconds. It is told of
        the process only when the one between has ended: before, it could not ask for the status of one that dies.
        """
        # Objects that exist now are left alone by the children's garbage collector, so their pages stay shared.
        gc.freeze()
        read_end, write_end = os.pipe()
        between = os.fork()
        if between == 0:
            between = os.getpid()
            pid = os.fork()
            if pid == 0:
                os.close(read_end)
                os.close(write_end)
                self._become(request, stderr, between)
            os.write(write_end, str(pid).encode())
            os._exit(0)
        os.close(stderr)
        os.close(write_end)
        os.waitpid(between, 0)
        pid = int(os.read(read_end, 32))
        os.close(read_end)
        self._send({"id": request["id"], "pid": pid})

    def _become(self, request: dict[str, Any], stderr: int, between: int) -> None:
        """Turn this fork into the requested program. Never returns."""
        code = 1
        try:
            self._detach(stderr, between)
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

    def _detach(self, stderr: int, between: int) -> None:
        from robustrl.supervisor.process import die_with_parent

        self._channel.close()
        os.setsid()
        while os.getppid() == between:
            time.sleep(0.0002)
        die_with_parent()
        # Whoever else has adopted this process, the agent is gone.
        if os.getppid() != self._agent:
            os._exit(1)
        os.dup2(stderr, 2)
        os.close(stderr)


def _read(descriptor: int) -> dict[str, Any]:
    """What the agent wrote to a file in memory."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
        return request


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
    """`python -m robustrl.warm_worker FD [--script FILE] [MODULE ...]` for training processes and engines;
    `python -m robustrl.warm_worker FD --only MODULE` for a program that needs none of what those need."""
    descriptor, *arguments = sys.argv[1:]
    channel = socket.socket(fileno=int(descriptor))
    if arguments[:1] == ["--only"]:
        loading(arguments[1])()
        WarmWorker(channel, []).serve()
        return
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
