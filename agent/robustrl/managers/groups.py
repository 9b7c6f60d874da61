"""Groups, their trajectories and turns, in the ledger."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class SampleId:
    """One sample of one prompt."""

    prompt_index: int
    sample: int

    def __str__(self) -> str:
        return f"{self.prompt_index}-{self.sample}"


@dataclass(frozen=True)
class Turn:
    """What an engine generated in one go.

    ``versions`` are the oldest and the newest weights that drew its tokens, as "EPOCH.STEP".
    """

    tokens: list[int]
    logprobs: list[float]
    versions: tuple[str, str]
    finish_reason: str = "length"
    text: str = ""


@dataclass(frozen=True)
class SavedTurn:
    """A turn in the ledger and the digest of what it continued from."""

    context: str
    turn: Turn


@dataclass(frozen=True)
class Trajectory:
    """A finished sample, as the trainer gets it. ``loss_mask`` is 1 on generated tokens."""

    id: str
    prompt_index: int
    sample: int
    tokens: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    versions: list[str]
    reward: float


@dataclass(frozen=True)
class GroupCounts:
    """Where the groups are, and which prompt comes next."""

    next_index: int
    failed: int


def counts(db: sqlite3.Connection) -> GroupCounts:
    highest, failed = db.execute("SELECT MAX(prompt_index), TOTAL(state = 'failed') FROM groups").fetchone()
    return GroupCounts(0 if highest is None else highest + 1, int(failed))


def by_state(db: sqlite3.Connection) -> dict[str, int]:
    found = dict.fromkeys(("running", "ready", "leased", "consumed", "failed"), 0)
    found.update(db.execute("SELECT state, COUNT(*) FROM groups GROUP BY state").fetchall())
    return found


def start(db: sqlite3.Connection, prompt_index: int, samples: int) -> None:
    """Open a group with all its samples, so that none can be forgotten."""
    db.execute("INSERT INTO groups (prompt_index, state) VALUES (?, 'running')", (prompt_index,))
    db.executemany(
        "INSERT INTO trajectories (prompt_index, sample, state) VALUES (?, ?, 'running')",
        [(prompt_index, sample) for sample in range(samples)],
    )


def unfinished(db: sqlite3.Connection) -> list[SampleId]:
    rows = db.execute(
        "SELECT prompt_index, sample FROM trajectories WHERE state = 'running' ORDER BY prompt_index, sample"
    )
    return [SampleId(*row) for row in rows]


def generated_total(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT TOTAL(generated) FROM trajectories").fetchone()[0])


def save_turn(db: sqlite3.Connection, sample: SampleId, number: int, context: str, turn: Turn) -> None:
    """Keep a finished turn; whatever was saved from there on under another context is void."""
    db.execute(
        "DELETE FROM turns WHERE prompt_index = ? AND sample = ? AND turn >= ?",
        (sample.prompt_index, sample.sample, number),
    )
    row = (sample.prompt_index, sample.sample, number, context, json.dumps(asdict(turn)))
    db.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?)", row)


def saved_turns(db: sqlite3.Connection, sample: SampleId) -> list[SavedTurn]:
    rows = db.execute(
        "SELECT context, payload FROM turns WHERE prompt_index = ? AND sample = ? ORDER BY turn",
        (sample.prompt_index, sample.sample),
    )
    return [SavedTurn(context, _turn(json.loads(payload))) for context, payload in rows]


def _turn(fields: dict[str, Any]) -> Turn:
    return Turn(**{**fields, "versions": tuple(fields["versions"])})


def finish(db: sqlite3.Connection, trajectory: Trajectory) -> bool:
    """Store a finished sample. True if its group is complete with it; a sample of a failed group is
    ignored."""
    where = (trajectory.prompt_index, trajectory.sample)
    stored = db.execute(
        "UPDATE trajectories SET state = 'ready', reward = ?, generated = ?, payload = ? "
        "WHERE prompt_index = ? AND sample = ? AND state = 'running'",
        (trajectory.reward, sum(trajectory.loss_mask), json.dumps(asdict(trajectory)), *where),
    ).rowcount
    db.execute("DELETE FROM turns WHERE prompt_index = ? AND sample = ?", where)
    return bool(stored) and _complete(db, trajectory.prompt_index)


def _complete(db: sqlite3.Connection, prompt_index: int) -> bool:
    (running,) = db.execute(
        "SELECT COUNT(*) FROM trajectories WHERE prompt_index = ? AND state = 'running'", (prompt_index,)
    ).fetchone()
    if running:
        return False
    db.execute(
        "UPDATE groups SET state = 'ready', completed = (SELECT COALESCE(MAX(completed), 0) + 1 FROM groups) "
        "WHERE prompt_index = ?",
        (prompt_index,),
    )
    return True


def fail(db: sqlite3.Connection, prompt_index: int, error: str) -> bool:
    """Give a group up and discard its trajectories. False if it was not running any more."""
    failed = db.execute(
        "UPDATE groups SET state = 'failed', error = ? WHERE prompt_index = ? AND state = 'running'",
        (error, prompt_index),
    ).rowcount
    if failed:
        db.execute(
            "UPDATE trajectories SET state = 'discarded', payload = NULL WHERE prompt_index = ?", (prompt_index,)
        )
        db.execute("DELETE FROM turns WHERE prompt_index = ?", (prompt_index,))
    return bool(failed)


def last_error(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT error FROM groups WHERE state = 'failed' ORDER BY prompt_index DESC LIMIT 1").fetchone()
    return row[0] if row else None
