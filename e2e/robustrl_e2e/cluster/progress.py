"""Says what is being waited for, and how long it took: one updating line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from .errors import ClusterError, log_tail

PLAIN_EVERY = 15.0  # seconds between lines of a step where there is no terminal
# What starts writes to disk first, and a disk that is still busy with an installation holds each fsync for tens of
# seconds. A start that fails for good is rare; a start given up too soon costs the whole run.
START_SECONDS = 300.0


class Step:
    """A step under way."""

    def __init__(self, what: str, out: TextIO) -> None:
        self.what = what
        self._out = out
        self._live = out.isatty()
        self._began = time.monotonic()
        self._said = self._began

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def update(self, detail: str = "") -> None:
        """Show what the step is doing now."""
        line = f"{self.what}: {self.seconds:.0f} s{', ' + detail if detail else ''}"
        if self._live:
            self._out.write(f"\r\x1b[K{line[:150]}")
            self._out.flush()
        elif time.monotonic() - self._said >= PLAIN_EVERY:
            self._said = time.monotonic()
            print(line, file=self._out, flush=True)

    def end(self, verdict: str) -> None:
        start = "\r\x1b[K" if self._live else ""
        print(f"{start}{self.what}: {verdict} {self.seconds:.1f} s", file=self._out, flush=True)


@contextmanager
def step(what: str) -> Iterator[Step]:
    """Run a block as a named step, with its time printed when it ends."""
    current = Step(what, sys.stderr)
    current.update()
    try:
        yield current
    except BaseException:
        current.end("FAILED after")
        raise
    current.end("done in")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wait_for(
    what: str, missing: Callable[[], str], *, every: float = 0.2, log: Callable[[], Path] | None = None
) -> None:
    """Poll `missing` (what is still missing, or "") every so many seconds until it is empty.

    After START_SECONDS the error shows what is missing and the end of the log that tells why.
    """
    with step(what) as current:
        while rest := missing():
            if current.seconds > START_SECONDS:
                tail = log_tail(log()) if log else ""
                raise ClusterError(f"{what}: still missing after {START_SECONDS:.0f} s: {rest}\n{tail}".rstrip())
            current.update(rest)
            time.sleep(every)
