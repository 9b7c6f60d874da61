"""The ledger's tables, and the version of them that a file has: SQLite's `user_version`.

A release that changes them raises `VERSION` and brings the files of the versions before it up to it. Files of before
there were versions have none, and their tables are those of version 1.
"""

from __future__ import annotations

import contextlib
import sqlite3

VERSION = 1
SCHEMA = """
-- One row a fact: the fence's epoch, and the shape of the job that the file belongs to.
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- A prompt and its samples. running -> ready -> leased -> consumed, or running -> failed.
-- completed: the order in which groups became ready, which is the order batches take them in.
CREATE TABLE IF NOT EXISTS groups (
    prompt_index INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('running', 'ready', 'leased', 'consumed', 'failed')),
    completed INTEGER,
    error TEXT
);
CREATE INDEX IF NOT EXISTS groups_by_state ON groups (state, completed);
CREATE INDEX IF NOT EXISTS groups_by_completion ON groups (completed);

-- One sample of a prompt. payload is dropped some steps after it was consumed; the row stays for the audit.
CREATE TABLE IF NOT EXISTS trajectories (
    prompt_index INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'ready', 'leased', 'consumed', 'discarded')),
    reward REAL,
    generated INTEGER NOT NULL DEFAULT 0,
    payload TEXT,
    PRIMARY KEY (prompt_index, sample)
);
CREATE INDEX IF NOT EXISTS trajectories_by_state ON trajectories (state);

-- Finished turns of unfinished trajectories. context: digest of the tokens the turn continued from.
CREATE TABLE IF NOT EXISTS turns (
    prompt_index INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    context TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (prompt_index, sample, turn)
) WITHOUT ROWID;

-- What each step trains on, fixed before anybody is told. Not unique by prompt: the audit looks for that itself.
CREATE TABLE IF NOT EXISTS batches (step INTEGER PRIMARY KEY, batch TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batch_groups (
    step INTEGER NOT NULL, prompt_index INTEGER NOT NULL, PRIMARY KEY (step, prompt_index)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batch_groups_by_prompt ON batch_groups (prompt_index);

-- Which epoch works on a step's batch. A raised fence deletes the leases of older epochs.
CREATE TABLE IF NOT EXISTS leases (step INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);

-- The steps that became real. Row N says: step N was trained, and checkpoint N + 1 exists.
CREATE TABLE IF NOT EXISTS commits (
    step INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    batch TEXT NOT NULL,
    digests TEXT NOT NULL,
    metrics TEXT NOT NULL,
    reward_mean REAL,
    time REAL NOT NULL
);

-- Steps that were real and are so no more: all copies of their checkpoints were lost, and they are trained again.
CREATE TABLE IF NOT EXISTS undone (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    step INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    batch TEXT NOT NULL,
    digests TEXT NOT NULL,
    time REAL NOT NULL
);

-- Each time it went back: the epoch that asked for it, and the step that came next then.
CREATE TABLE IF NOT EXISTS rollbacks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, epoch INTEGER NOT NULL, step INTEGER NOT NULL
);

-- Each epoch that was let pass, and the step that came next then.
CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, step INTEGER NOT NULL);

-- Every version of the weights that was announced.
CREATE TABLE IF NOT EXISTS versions (
    epoch INTEGER NOT NULL, step INTEGER NOT NULL, root TEXT NOT NULL, publisher TEXT NOT NULL,
    PRIMARY KEY (epoch, step)
) WITHOUT ROWID;
"""


class UnknownSchema(Exception):
    """A file whose tables these are not; the text says what it has and what to do."""


def check(db: sqlite3.Connection) -> None:
    """Refuse a file that this release cannot read. A file without tables is a new one.

    Raises:
        UnknownSchema: it is of a newer release, or of something else.
    """
    version = _version(db)
    if version > VERSION:
        raise UnknownSchema(
            f"has schema version {version}, and this release knows those up to {VERSION}: a newer release of RobustRL "
            "wrote it; use that one, or a newer"
        )
    if version == 0 and (strange := _tables(db).items() - _known().items()):
        names = ", ".join(sorted(name for name, _ in strange))
        raise UnknownSchema(f"is no ledger that this release knows: its tables are others ({names}); give another file")


def complete(db: sqlite3.Connection) -> None:
    """Make the tables that are not there yet, and note their version."""
    db.executescript(SCHEMA)
    if _version(db) != VERSION:
        db.execute(f"PRAGMA user_version = {VERSION}")


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _known() -> dict[str, tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return _tables(db)


def _tables(db: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """The columns of each, in order."""
    found: dict[str, tuple[str, ...]] = {}
    for table, column in db.execute(
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
        "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY m.name, c.cid"
    ):
        found[table] = (*found.get(table, ()), column)
    return found
