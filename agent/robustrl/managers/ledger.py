"""The durable memory of a job: one SQLite file in WAL mode, written by one thread.

A change survives the death of the process at once; one that other
machines act upon (a fence, a batch, a commit, a version) is ``durable`` and survives the death of the
machine too, and with it everything written before it, since the log is written in order.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from robustrl.managers.config import ConfigError, ManagerConfig

T = TypeVar("T")

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

_SHAPE = ("prompts_per_step", "samples_per_prompt", "seed")


class CannotOpen(Exception):
    """The file cannot be used now. It may be later: a volume comes back, another process lets go of it."""


@dataclass(eq=False)
class _Change:
    """A change that waits for its turn, and who waits for it."""

    apply: Callable[[sqlite3.Connection], Any]
    durable: bool
    done: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Ledger:
    """The file and the thread that owns it. The SQL lives with the concept it belongs to.

    Changes that come while the thread is busy are written together: one transaction, in which each change succeeds
    or fails alone. Nobody is answered before the transaction that holds his change is committed.
    """

    def __init__(self, path: Path | str) -> None:
        """Open the file, or make it.

        Raises:
            CannotOpen: it cannot be had now.
        """
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._db = self._worker.submit(_open, str(path)).result()
        self._waiting: list[_Change] = []
        self._writer: asyncio.Task[None] | None = None

    async def run(self, change: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """Run ``change`` off the event loop, whole or not at all; an exception rolls it back and comes here."""
        loop = asyncio.get_running_loop()
        waiting = _Change(change, durable, loop.create_future())
        self._waiting.append(waiting)
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write(), name="ledger")
        result: T = await waiting.done
        return result

    async def close(self) -> None:
        """Finish what was queued and close the file."""
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._worker, self._db.close)
        self._worker.shutdown()

    async def _write(self) -> None:
        while self._waiting:
            changes, self._waiting = self._waiting, []
            try:
                await asyncio.get_running_loop().run_in_executor(self._worker, self._transact, changes)
            except BaseException as error:
                for change in changes:
                    change.error = change.error or error
            for change in changes:
                _answer(change)

    def _transact(self, changes: list[_Change]) -> None:
        db = self._db
        durable = any(change.durable for change in changes)
        if durable:
            db.execute("PRAGMA synchronous = FULL")
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                for change in changes:
                    _apply(db, change)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite itself gives up one for which there is no room
                    db.execute("ROLLBACK")
                raise
        finally:
            if durable:
                db.execute("PRAGMA synchronous = NORMAL")


def _apply(db: sqlite3.Connection, change: _Change) -> None:
    """One change of a transaction. Its failure undoes it and no other."""
    db.execute("SAVEPOINT change")
    try:
        change.result = change.apply(db)
    except Exception as error:
        change.error = error
        if not db.in_transaction:
            raise
        db.execute("ROLLBACK TO change")
    db.execute("RELEASE change")


def _answer(change: _Change) -> None:
    if change.done.done():
        return  # its caller has gone
    if change.error is not None:
        change.done.set_exception(change.error)
    else:
        change.done.set_result(change.result)


def _open(path: str) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(SCHEMA)
    except sqlite3.Error as error:
        raise CannotOpen(f"the ledger {path} cannot be opened: {error}; check its volume and permissions") from error
    return db


def claim(db: sqlite3.Connection, config: ManagerConfig) -> None:
    """Write the job's shape into a new file, or refuse a file that was begun with another one."""
    for name in _SHAPE:
        wanted = str(getattr(config, name))
        db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, wanted))
        (found,) = db.execute("SELECT value FROM meta WHERE key = ?", (name,)).fetchone()
        if found != wanted:
            raise ConfigError(f"the ledger was begun with {name} = {found}; it cannot go on with {wanted}")
