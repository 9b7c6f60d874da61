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

from robustrl.managers import schema
from robustrl.managers.config import ConfigError, ManagerConfig
from robustrl.managers.schema import UnknownSchema

T = TypeVar("T")
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
            ConfigError: it is none that these managers could go on with.
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
        schema.check(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        schema.complete(db)
    except sqlite3.Error as error:
        raise CannotOpen(f"the ledger {path} cannot be opened: {error}; check its volume and permissions") from error
    except UnknownSchema as error:
        raise ConfigError(f"the ledger {path} {error}") from error
    return db


def claim(db: sqlite3.Connection, config: ManagerConfig) -> None:
    """Write the job's shape into a new file, or refuse a file that was begun with another one."""
    for name in _SHAPE:
        wanted = str(getattr(config, name))
        db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, wanted))
        (found,) = db.execute("SELECT value FROM meta WHERE key = ?", (name,)).fetchone()
        if found != wanted:
            raise ConfigError(f"the ledger was begun with {name} = {found}; it cannot go on with {wanted}")
