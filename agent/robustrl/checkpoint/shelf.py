"""A shelf of checkpoints: ROOT/EPOCH.STEP/rank-R, in memory or on storage."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from robustrl_api.version import Version


class Shelf:
    """The checkpoints under one root folder."""

    def __init__(self, root: Path, keep: int) -> None:
        self.root = root
        self._keep = keep
        self._pinned: Counter[Version] = Counter()

    def folder(self, version: Version, rank: int) -> Path:
        """Where one rank's part of a checkpoint is, or would be."""
        return self.root / str(version) / f"rank-{rank}"

    def copies(self, version: Version) -> list[Path]:
        """Folders of every rank's part that is here."""
        parent = self.root / str(version)
        return sorted(path for path in parent.glob("rank-*") if path.is_dir()) if parent.is_dir() else []

    def versions(self) -> list[Version]:
        """Versions that are here, oldest first by step."""
        if not self.root.is_dir():
            return []
        found = []
        for entry in self.root.iterdir():
            with contextlib.suppress(ValueError):
                found.append(Version.parse(entry.name))
        return sorted(found, key=lambda version: (version.step, version.epoch))

    @contextlib.contextmanager
    def pinned(self, version: Version) -> Iterator[None]:
        """Inside the block the checkpoint is not pruned: somebody reads it."""
        self._pinned[version] += 1
        try:
            yield
        finally:
            self._pinned[version] -= 1

    def prune(self, protect: Version) -> None:
        """Remove all but the newest `keep` checkpoints; `protect`, the newest committed one, always stays.

        What an older epoch made of the same steps or later ones is over, and takes no good checkpoint's place: those
        steps were undone, or never committed.
        """
        here = self.versions()
        over = [version for version in here if version.epoch < protect.epoch and version.step >= protect.step]
        alive = [version for version in here if version not in over]
        for version in (*over, *alive[: -self._keep or None]):
            if version != protect and not self._pinned[version]:
                shutil.rmtree(self.root / str(version), ignore_errors=True)
