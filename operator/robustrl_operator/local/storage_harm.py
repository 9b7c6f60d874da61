"""What faults can do to a job's checkpoints: to the volume, where this machine has it, and to what lies on it."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from robustrl.checkpoint.shelf import Shelf
from robustrl_api.version import Version

SETTLE_SECONDS = 1.0
"""Copies that are on their way when the trainers stop have arrived by then."""
FILLER = ".filler"
BLOCK_BYTES = 1 << 20


class NoVolume(Exception):
    """The checkpoints share their file system with other things, which must not come to harm."""


class StorageHarm:
    """Harms the volume of a job's checkpoints; `mend` undoes it.

    Args:
        checkpoints: where it is mounted here.
    """

    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints
        self._sealed = False

    def fill(self) -> None:
        """Leave no room on the volume.

        Raises:
            NoVolume: it is not theirs alone.
        """
        self._check()
        block = bytes(BLOCK_BYTES)
        with (self._checkpoints / FILLER).open("wb", buffering=0) as filler:
            while True:
                try:
                    filler.write(block)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def seal(self) -> None:
        """Let nobody write to the volume.

        Raises:
            NoVolume: it is not theirs alone.
        """
        self._check()
        _mount("remount,ro", self._checkpoints)
        self._sealed = True

    def _check(self) -> None:
        if not self._checkpoints.is_mount():
            raise NoVolume(f"{self._checkpoints} is no volume of its own: mount one there before the run")

    def mend(self) -> None:
        """Give the volume back as it was; checkpoints stay damaged."""
        if self._sealed:
            _mount("remount,rw", self._checkpoints)
            self._sealed = False
        (self._checkpoints / FILLER).unlink(missing_ok=True)


def damage_copies(shelf: Path, version: Version) -> int:
    """Change a byte in the largest file of every copy that is on a shelf; how many there were."""
    copies = Shelf(shelf, 1).copies(version)
    for copy in copies:
        largest = max((path for path in copy.iterdir()), key=lambda path: path.stat().st_size)
        with largest.open("r+b") as stream:
            stream.seek(largest.stat().st_size // 2)
            (byte,) = stream.read(1)
            stream.seek(-1, os.SEEK_CUR)
            stream.write(bytes([byte ^ 0xFF]))
    return len(copies)


def _mount(options: str, volume: Path) -> None:
    subprocess.run(["mount", "-o", options, str(volume)], check=True, capture_output=True, timeout=10)
