"""Something that the audit found wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is wrong."""

    TRAINED_TWICE = "TrainedTwice"
    """A prompt's trajectories are in two steps of the surviving history."""
    LOST = "Lost"
    """Trajectories that should exist and do not, or that are held for no batch that would ever use them."""
    MISSING_STEP = "MissingStep"
    """A step of the surviving history has no commit."""
    COMMITTED_TWICE = "CommittedTwice"
    STALE_EPOCH = "StaleEpoch"
    """A commit by an epoch that was over."""
    WRONG_BATCH = "WrongBatch"
    """A commit names another batch than the step has."""
    ALTERED_BATCH = "AlteredBatch"
    """What is in a batch is not what its name says."""
    NO_DIGEST = "NoDigest"
    """A commit that names no checkpoint."""
    OTHER_CHECKPOINT = "OtherCheckpoint"
    """A checkpoint on storage is not the one that was committed under its name."""
    DAMAGED_CHECKPOINT = "DamagedCheckpoint"
    LEDGER_BEHIND = "LedgerBehind"
    """Storage has checkpoints of steps that the ledger does not know: it is an old copy, or was put back."""
    REPLAY_DIFFERS = "ReplayDiffers"
    """Training on the recorded batches again gave another state."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    what: str
    """The sentence for a person."""
    step: int | None = None
