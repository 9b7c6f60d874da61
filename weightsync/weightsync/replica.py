"""The life of a replica's weights: SERVING -> PULLING -> VERIFIED -> APPLYING -> SERVING.

Invariants:
- no token from torn weights: from the moment an apply begins until one has ended well, the replica does not serve;
- that holds across crashes: the mark is durable before the first byte changes, and goes away after the last;
- only a whole, verified version is applied;
- what it serves is the version it says, never the one it is about to have.

Whoever finds the mark applies a whole version before anybody is answered.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class ReplicaState(StrEnum):
    EMPTY = "Empty"
    """Serves nothing: it has just started, or its last apply was cut off."""
    SERVING = "Serving"
    PULLING = "Pulling"
    """Into a shadow. Serves what it served before."""
    VERIFIED = "Verified"
    """The shadow is whole. Serves what it served before."""
    APPLYING = "Applying"


class WrongOrder(Exception):
    """A step that does not follow from the state that the replica is in."""


class Mark(Protocol):
    """Says durably that an apply is under way."""

    def set(self, version: str) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...


class FileMark:
    """A mark that survives the process, and the machine where the file's disk does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, version: str) -> None:
        with self._path.open("w") as file:
            file.write(version)
            file.flush()
            os.fsync(file.fileno())
        self._sync_folder()

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
        self._sync_folder()

    def is_set(self) -> bool:
        return self._path.exists()

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class Replica:
    """Which version a replica serves, if any, and what it is doing about the next."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self.state = ReplicaState.EMPTY
        self.version = ""
        """What it serves; empty while it serves nothing."""
        self._next = ""

    @property
    def torn(self) -> bool:
        """Whether an apply has begun and not ended: in this life of the process or an earlier one."""
        return self._mark.is_set()

    @property
    def serves(self) -> bool:
        """Whether it may answer requests."""
        return bool(self.version) and self.state is not ReplicaState.APPLYING and not self.torn

    def pull(self, version: str) -> None:
        """Begin to pull. A newer version takes the place of one that is being pulled or waits to be applied."""
        self._require(ReplicaState.EMPTY, ReplicaState.SERVING, ReplicaState.PULLING, ReplicaState.VERIFIED)
        self.state, self._next = ReplicaState.PULLING, version

    def verified(self, version: str) -> None:
        """All of it is here, and right."""
        self._require(ReplicaState.PULLING)
        if version != self._next:
            raise WrongOrder(f"{version} is verified while {self._next} is pulled")
        self.state = ReplicaState.VERIFIED

    def pull_failed(self) -> None:
        """What it served before it goes on serving."""
        self._require(ReplicaState.PULLING)
        self._rest()

    def apply(self, version: str) -> None:
        """Begin to change the weights that answers are made from: nobody is answered any more."""
        self._require(ReplicaState.VERIFIED)
        if version != self._next:
            raise WrongOrder(f"{version} is not the one that was verified: {self._next}")
        self._mark.set(version)
        self.state, self.version = ReplicaState.APPLYING, ""

    def applied(self) -> None:
        """Every byte of it is in place."""
        self._require(ReplicaState.APPLYING)
        self._mark.clear()
        self.state, self.version, self._next = ReplicaState.SERVING, self._next, ""

    def apply_failed(self) -> None:
        """The weights are torn; only a whole apply mends them."""
        self._require(ReplicaState.APPLYING)
        self._rest()

    def have(self, version: str) -> None:
        """A verified version is in memory already, as for an engine that was started anew."""
        self._require(ReplicaState.EMPTY, ReplicaState.SERVING, ReplicaState.PULLING, ReplicaState.VERIFIED)
        self.state, self._next = ReplicaState.VERIFIED, version

    def lost(self) -> None:
        """The process that served is gone, and its weights with it."""
        self.state, self.version, self._next = ReplicaState.EMPTY, "", ""

    def _rest(self) -> None:
        self._next = ""
        self.state = ReplicaState.SERVING if self.version and not self.torn else ReplicaState.EMPTY

    def _require(self, *states: ReplicaState) -> None:
        if self.state not in states:
            raise WrongOrder(f"not while {self.state}")
