"""Commands that run to an end, and the identity of processes that do not.

A process is its pid and its start time: a pid alone may have been given to another process since.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import ClusterError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
COMMAND_SECONDS = 1800.0
"""Longer than anything here takes that does not hang: images that are pulled, packages that are downloaded."""


@dataclass(frozen=True)
class Identity:
    """One process of one boot of this machine. `start` is in clock ticks since that boot."""

    pid: int
    start: int
    boot: str

    @property
    def alive(self) -> bool:
        return identify(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Signal this very process; nothing happens if it is gone, whoever has its pid now."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # Compared after opening: from here on the handle can mean no other process.
            if self.alive:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)


def parse_stat(stat: str) -> tuple[str, int]:
    """State letter and start time of a /proc/PID/stat line, whose second field may hold spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None for none and for a zombie, which runs nothing any more."""
    try:
        state, start = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else Identity(pid, start, BOOT_ID.read_text().strip())


def write_pid_file(path: Path, identity: Identity) -> None:
    path.write_text(json.dumps(asdict(identity)))


def read_pid_file(path: Path) -> Identity | None:
    """None if the file is not there or was cut off while it was written."""
    try:
        return Identity(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def run(*command: str | Path, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
    """Run a command to its end, which must come within so many seconds, and return its standard output."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{' '.join(words)[:300]}\nhas not ended within {seconds:.0f} s and was killed") from error
    if done.returncode:
        raise ClusterError(f"{' '.join(words)[:300]}\nended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout
