"""The pod's memory-backed folder: what survives the agent and its container, and how much room there is."""

from __future__ import annotations

import tempfile
from pathlib import Path

from robustrl.checkpoint.shelf import Shelf
from robustrl_api.pod_config import PodConfig

SLOTS = 2
"""Checkpoints kept in memory: the newest and the one before it, which stays valid while the newest is written."""


class PodMemory:
    """Paths in the memory-backed folder."""

    def __init__(self, config: PodConfig) -> None:
        self.root = Path(config.memory_dir)
        self.checkpoints = Shelf(self.root / "checkpoints", keep=SLOTS)
        self.storage = Shelf(Path(config.storage_dir), config.checkpoint_keep) if config.storage_dir else None
        self.weights = self.root / "weights"
        self.socket = self.root / "agent.sock"
        self._started = self.root / "started-epoch"
        self._life = self.root / "last-life"
        self._strike = self.root / "last-strike"

    def prepare(self) -> str:
        """Make the folders; a sentence about what cannot be written, or nothing."""
        return _problem(self.checkpoints.root) or _problem(self.weights)

    def prepare_storage(self) -> str:
        """The same for storage, without which a job that is at work goes on."""
        return _problem(self.storage.root) if self.storage else ""

    def started_epoch(self) -> int:
        """The last epoch whose workers were started here, by this agent or one before it."""
        try:
            return int(self._started.read_text())
        except (OSError, ValueError):
            return 0

    def mark_started(self, epoch: int) -> None:
        self._started.write_text(str(epoch))

    def last_life(self) -> str:
        """The engine or managers that were started here and not stopped since; empty where there are none."""
        try:
            return self._life.read_text()
        except OSError:
            return ""

    def mark_life(self, life: str) -> None:
        self._life.write_text(life)

    def last_strike(self) -> str:
        """The last fault made on purpose that was begun here, by this agent or one before it."""
        try:
            return self._strike.read_text()
        except OSError:
            return ""

    def mark_strike(self, strike: str) -> None:
        self._strike.write_text(strike)


def _problem(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A file of its own: pods that share the volume try at the same moment.
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror}); check the volume and its permissions"
