"""Going back: when no good copy of the newest checkpoint is left anywhere, an older one becomes the newest again.

The steps after it are undone: they leave the surviving history of the model, and are trained again, each on the same
batch. So every trajectory is still consumed exactly once by that history. Undone commits are kept beside it, for the
audit and for people. It goes back no further than the payloads of the batches reach.
"""

from __future__ import annotations

import sqlite3

from robustrl.managers import batches, fence
from robustrl.managers.refusal import Refused


def roll_back(db: sqlite3.Connection, epoch: int, step: int) -> int:
    """Make the checkpoint after `step` steps the newest. Returns how many steps were undone; again, none.

    Raises:
        Fenced: the epoch is over.
        Refused: the ledger does not hold enough to train the steps after it again.
    """
    fence.admit(db, epoch)
    undone = range(batches.next_step(db) - 1, step - 1, -1)
    for each in undone:
        _undo(db, each)
    if undone:
        db.execute("INSERT INTO rollbacks (epoch, step) VALUES (?, ?)", (epoch, step))
    return len(undone)


def undone_total(db: sqlite3.Connection) -> int:
    """Steps undone so far, in all."""
    (count,) = db.execute("SELECT COUNT(*) FROM undone").fetchone()
    return int(count)


def _undo(db: sqlite3.Connection, step: int) -> None:
    (lacking,) = db.execute(
        f"SELECT COUNT(*) FROM trajectories WHERE {batches.OF_BATCH} AND payload IS NULL", (step,)
    ).fetchone()
    if lacking:
        raise Refused("TooLongAgo", f"the batch of step {step} is not kept any more: it cannot be trained again")
    db.execute(
        "INSERT INTO undone (step, epoch, batch, digests, time) "
        "SELECT step, epoch, batch, digests, time FROM commits WHERE step = ?",
        (step,),
    )
    db.execute("DELETE FROM commits WHERE step = ?", (step,))
    db.execute("DELETE FROM leases WHERE step = ?", (step,))
    batches.move(db, step, "consumed", "leased")
