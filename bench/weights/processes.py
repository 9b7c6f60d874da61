"""The benchmark's processes, and talking to many of them at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ANSWER_SECONDS = 600.0
"""Far more than any command takes on a busy machine."""


class Process:
    """A `node.py`. `tell` begins a command, `answer` waits for its end."""

    def __init__(self, env: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(HERE / "node.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**plain, **env}, stderr=subprocess.DEVNULL if "WEIGHTS_QUIET" in os.environ else None,
        )  # fmt: skip
        self._pid = 0

    def tell(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout
        too_long = threading.Timer(ANSWER_SECONDS, self._process.kill)
        too_long.start()
        line = self._process.stdout.readline()
        too_long.cancel()
        if not line:
            how = f"ended with {self._process.wait()}, or was killed since it gave no answer for {ANSWER_SECONDS:.0f} s"
            raise SystemExit(f"a process of the benchmark {how}; its words are above")
        return json.loads(line)

    def ask(self, do: str, **arguments: Any) -> Any:
        self.tell(do, **arguments)
        return self.answer()

    def ready(self) -> None:
        self._pid = int(self.answer()["pid"])

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def processes(prefixes: Sequence[Sequence[str]], env: Mapping[str, str]) -> Iterator[list[Process]]:
    """One process for each prefix of its command line; all are ended in the end."""
    begun: list[Process] = []
    try:
        begun.extend(Process(env, prefix) for prefix in prefixes)
        for process in begun:
            process.ready()
        yield begun
    finally:
        for process in begun:
            process.end()
