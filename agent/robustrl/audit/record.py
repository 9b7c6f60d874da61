"""What a ledger says, read in one transaction and frozen: all that the audit's rules may know."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from robustrl.managers import batches, fence, schema
from robustrl.managers.schema import UnknownSchema
from robustrl_api.version import Version


class BadLedger(Exception):
    """The file is no ledger that could be read to its end; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A step that became real. Its checkpoint holds the state after it."""

    step: int
    epoch: int
    batch: str
    digests: dict[str, str]
    """Root of the checkpoint's folder by rank."""

    @property
    def version(self) -> Version:
        """Of the checkpoint."""
        return Version(self.epoch, self.step + 1)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step trains on."""

    name: str
    groups: tuple[int, ...] = ()
    """Indices of the prompts."""
    content: str = ""
    """Digest of its trajectories as they are in the file now; "" where they are not kept any more."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An epoch that acted for the first time, or went back: `step` came next then."""

    epoch: int
    step: int


@dataclass(frozen=True)
class Record:
    """A ledger at one moment.

    Attributes:
        commits: the surviving history, by step.
        undone: steps that were real and are so no more, in the order in which they were undone.
        samples: how many trajectories of a prompt are in which state.
    """

    samples_per_prompt: int
    fence: int = 0
    commits: tuple[Commit, ...] = ()
    undone: tuple[Commit, ...] = ()
    epochs: tuple[Turn, ...] = ()
    rollbacks: tuple[Turn, ...] = ()
    batches: dict[int, Batch] = field(default_factory=dict)
    samples: dict[int, dict[str, int]] = field(default_factory=dict)

    @property
    def next_step(self) -> int:
        """The step that the job trains next; also the step of its newest checkpoint."""
        return max((commit.step for commit in self.commits), default=-1) + 1


def read(path: Path) -> Record:
    """The record in a ledger file, which may be in use.

    Raises:
        BadLedger: there is no such file, it is damaged, or it is something else.
    """
    with opened(path) as db:
        return of(db)


def of(db: sqlite3.Connection) -> Record:
    """The record in an open ledger."""
    row = db.execute("SELECT value FROM meta WHERE key = 'samples_per_prompt'").fetchone()
    if row is None:
        raise BadLedger("the ledger has no job in it: it was made, and no managers ever worked with it")
    return Record(
        samples_per_prompt=int(row[0]),
        fence=fence.current(db),
        commits=commits(db),
        undone=_commits(db, "SELECT step, epoch, batch, digests FROM undone ORDER BY number"),
        epochs=_turns(db, "SELECT epoch, step FROM epochs ORDER BY epoch"),
        rollbacks=_turns(db, "SELECT epoch, step FROM rollbacks ORDER BY number"),
        batches=_batches(db),
        samples=_samples(db),
    )


def commits(db: sqlite3.Connection) -> tuple[Commit, ...]:
    """The surviving history, by step."""
    return _commits(db, "SELECT step, epoch, batch, digests FROM commits ORDER BY step")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A ledger to be read only, as it is at this moment.

    Raises:
        BadLedger: as `read`; also when the damage shows inside the block.
    """
    if not path.is_file():
        raise BadLedger(f"{path} does not exist; give the job's ledger, spec.manager.ledger, or a copy of it")
    try:
        with contextlib.closing(sqlite3.connect(_uri(path), uri=True, isolation_level=None)) as db:
            db.execute("BEGIN")
            _check(db, path)
            yield db
    except (sqlite3.Error, ValueError) as error:
        raise BadLedger(
            f"{path} cannot be read as a ledger ({error}); copy it again, with its -wal file if there is one"
        ) from error


def _uri(path: Path) -> str:
    """A copy without its log may lie where nothing can be written; others need room for SQLite's shared memory."""
    alone = not path.with_name(f"{path.name}-wal").exists() and not os.access(path.parent, os.W_OK)
    return f"{path.resolve().as_uri()}?mode=ro" + ("&immutable=1" if alone else "")


def _check(db: sqlite3.Connection, path: Path) -> None:
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise BadLedger(f"{path} is damaged ({verdict}); copy it again, or restore it from a backup of the volume")
    try:
        schema.check(db)
    except UnknownSchema as error:
        raise BadLedger(f"{path} {error}") from error


def _commits(db: sqlite3.Connection, query: str) -> tuple[Commit, ...]:
    return tuple(Commit(step, epoch, batch, json.loads(digests)) for step, epoch, batch, digests in db.execute(query))


def _turns(db: sqlite3.Connection, query: str) -> tuple[Turn, ...]:
    return tuple(Turn(*row) for row in db.execute(query))


def _batches(db: sqlite3.Connection) -> dict[int, Batch]:
    members: dict[int, list[int]] = {}
    for step, prompt in db.execute("SELECT step, prompt_index FROM batch_groups ORDER BY step, prompt_index"):
        members.setdefault(step, []).append(prompt)
    names = dict(db.execute("SELECT step, batch FROM batches").fetchall())
    return {
        step: Batch(names.get(step, ""), tuple(members.get(step, ())), batches.content(db, step))
        for step in sorted({*names, *members})
    }


def _samples(db: sqlite3.Connection) -> dict[int, dict[str, int]]:
    """By prompt: also one whose samples are gone, and none that was never begun."""
    found: dict[int, dict[str, int]] = {index: {} for (index,) in db.execute("SELECT prompt_index FROM groups")}
    rows = db.execute("SELECT prompt_index, state, COUNT(*) FROM trajectories GROUP BY prompt_index, state")
    for prompt, state, count in rows:
        if prompt in found:
            found[prompt][state] = count
    return found
