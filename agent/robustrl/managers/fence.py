"""The fence: which trainer incarnation may act.

Invariant: the fence never falls. Each epoch's first appearance is on record, with the step that came next then: no
older epoch can have committed that step or a later one, and the audit checks that none did. The fence is checked and
raised inside the transaction that it protects, so no message of an older epoch can slip in between.
"""

from __future__ import annotations

import sqlite3

from robustrl.managers.refusal import Fenced


def current(db: sqlite3.Connection) -> int:
    """The newest epoch seen; 0 before the first."""
    row = db.execute("SELECT value FROM meta WHERE key = 'fence'").fetchone()
    return int(row[0]) if row else 0


def admit(db: sqlite3.Connection, epoch: int) -> None:
    """Let ``epoch`` pass; a newer one raises the fence and voids the leases of the older ones.

    Raises:
        Fenced: the epoch is over.
    """
    fence = current(db)
    if epoch < fence:
        raise Fenced(epoch, fence)
    if epoch > fence:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('fence', ?)", (str(epoch),))
        db.execute("INSERT INTO epochs SELECT ?, COALESCE(MAX(step) + 1, 0) FROM commits", (epoch,))
        db.execute("DELETE FROM leases WHERE epoch < ?", (epoch,))
