"""The one exception that the cluster's commands report to the user as a plain sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


class ClusterError(Exception):
    """What went wrong and what to do about it, readable without a traceback."""


def told(command: Callable[[], int]) -> int:
    """Run a command, and tell what is wrong with the cluster in a sentence. Its exit status."""
    try:
        return command()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def log_tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, headed by its path; an empty string if there is no such log."""
    if not log.is_file():
        return ""
    tail = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"last lines of {log}:", *(f"  {line}" for line in tail)])
