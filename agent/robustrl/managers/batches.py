"""Batches and commits, in the ledger.

Invariants: a step's batch is fixed by the first lease and is the same for every epoch; a step is committed at most
once, in order, by the epoch that holds the lease of its batch; committing consumes exactly the batch's
groups.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import xxhash

from robustrl.managers import fence
from robustrl.managers.refusal import Refused

OF_BATCH = "prompt_index IN (SELECT prompt_index FROM batch_groups WHERE step = ?)"
"""The groups, or trajectories, of a step's batch."""


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint: what a new epoch restores."""

    epoch: int
    step: int
    digests: dict[str, str]


def next_step(db: sqlite3.Connection) -> int:
    """The step that is to be trained now; also the step of the newest committed checkpoint."""
    (last,) = db.execute("SELECT MAX(step) FROM commits").fetchone()
    return 0 if last is None else int(last) + 1


def newest_checkpoint(db: sqlite3.Connection) -> Checkpoint | None:
    row = db.execute("SELECT epoch, step + 1, digests FROM commits ORDER BY step DESC LIMIT 1").fetchone()
    return Checkpoint(row[0], row[1], json.loads(row[2])) if row else None


def is_formed(db: sqlite3.Connection, step: int) -> bool:
    return _batch(db, step) is not None


def lease(db: sqlite3.Connection, epoch: int, step: int, groups: int) -> str | None:
    """Give ``epoch`` the batch of ``step``, forming it from ``groups`` ready groups; None while there are
    too few."""
    fence.admit(db, epoch)
    _check_order(db, step)
    batch = _batch(db, step) or _form(db, step, groups)
    if batch is not None:
        db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?)", (step, epoch))
    return batch


def trajectories(db: sqlite3.Connection, step: int, rank: int, world_size: int) -> list[dict[str, Any]]:
    """One rank's share: every ``world_size``-th group from ``rank`` on, groups in order of their prompts,
    whole."""
    groups = [row[0] for row in db.execute("SELECT prompt_index FROM batch_groups WHERE step = ? ORDER BY 1", (step,))]
    mine = groups[rank::world_size]
    rows = db.execute(
        f"SELECT payload FROM trajectories WHERE prompt_index IN ({','.join('?' * len(mine))}) "
        "ORDER BY prompt_index, sample",
        mine,
    )
    return [json.loads(payload) for (payload,) in rows]


def commit(
    db: sqlite3.Connection,
    *,
    epoch: int,
    step: int,
    batch: str,
    digests: dict[str, str],
    metrics: dict[str, Any],
    now: float,
    keep_batches: int,
) -> int:
    """Make a step real. Returns the next step; saying the same again changes nothing.

    Args:
        keep_batches: how many of the newest steps keep their trajectories, to be trained on again by a rollback or a
            replay.
    """
    fence.admit(db, epoch)
    if (epoch, batch) == db.execute("SELECT epoch, batch FROM commits WHERE step = ?", (step,)).fetchone():
        return step + 1
    _check_order(db, step)
    _check_lease(db, epoch, step, batch)
    reward_mean = _consume(db, step)
    row = (step, epoch, batch, json.dumps(digests), json.dumps(metrics), reward_mean, now)
    db.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    _forget_payloads(db, step - keep_batches)
    return step + 1


def curve(db: sqlite3.Connection) -> list[dict[str, Any]]:
    rows = db.execute("SELECT epoch, step, time, reward_mean, metrics FROM commits ORDER BY step")
    return [
        {"epoch": epoch, "step": step, "time": time, "reward_mean": reward, "metrics": json.loads(metrics)}
        for epoch, step, time, reward, metrics in rows
    ]


def last_commit(db: sqlite3.Connection) -> tuple[float | None, dict[str, Any]]:
    row = db.execute("SELECT reward_mean, metrics FROM commits ORDER BY step DESC LIMIT 1").fetchone()
    return (row[0], json.loads(row[1])) if row else (None, {})


def _batch(db: sqlite3.Connection, step: int) -> str | None:
    row = db.execute("SELECT batch FROM batches WHERE step = ?", (step,)).fetchone()
    return row[0] if row else None


def _form(db: sqlite3.Connection, step: int, size: int) -> str | None:
    rows = db.execute(
        "SELECT prompt_index FROM groups WHERE state = 'ready' ORDER BY completed LIMIT ?", (size,)
    ).fetchall()
    if len(rows) < size:
        return None
    members = sorted(row[0] for row in rows)
    db.executemany("INSERT INTO batch_groups VALUES (?, ?)", [(step, member) for member in members])
    batch = name_of(step, members, content(db, step))
    db.execute("INSERT INTO batches VALUES (?, ?)", (step, batch))
    move(db, step, "ready", "leased")
    return batch


def name_of(step: int, members: Iterable[int], content: str) -> str:
    """A batch's name says what is in it: digests of its groups' prompts and of its trajectories."""
    return f"{step}-{xxhash.xxh3_64_hexdigest(repr(sorted(members)).encode())}-{content}"


def content(db: sqlite3.Connection, step: int) -> str:
    """Digest (xxh3-128) of a batch's trajectories as they are stored, in their order; "" once they are dropped."""
    digest = xxhash.xxh3_128()
    rows = db.execute(f"SELECT payload FROM trajectories WHERE {OF_BATCH} ORDER BY prompt_index, sample", (step,))
    for (payload,) in rows:
        if payload is None:
            return ""
        digest.update(payload.encode() + b"\n")
    return digest.hexdigest()


def move(db: sqlite3.Connection, step: int, before: str, after: str) -> int:
    """Change the state of a batch's groups and trajectories. Returns how many groups had the state before."""
    db.execute(f"UPDATE trajectories SET state = ? WHERE {OF_BATCH} AND state = ?", (after, step, before))
    return db.execute(f"UPDATE groups SET state = ? WHERE {OF_BATCH} AND state = ?", (after, step, before)).rowcount


def _consume(db: sqlite3.Connection, step: int) -> float | None:
    (size,) = db.execute("SELECT COUNT(*) FROM batch_groups WHERE step = ?", (step,)).fetchone()
    if move(db, step, "leased", "consumed") != size:
        raise Refused("AlreadyConsumed", f"a group of step {step} has been consumed before", status=500)
    (reward,) = db.execute(
        "SELECT AVG(reward) FROM trajectories JOIN batch_groups USING (prompt_index) WHERE step = ?", (step,)
    ).fetchone()
    return None if reward is None else float(reward)


def _forget_payloads(db: sqlite3.Connection, step: int) -> None:
    db.execute(f"UPDATE trajectories SET payload = NULL WHERE {OF_BATCH}", (step,))


def _check_order(db: sqlite3.Connection, step: int) -> None:
    if step != (expected := next_step(db)):
        raise Refused("OutOfOrder", f"step {step} is not the next one, {expected}", step=expected)


def _check_lease(db: sqlite3.Connection, epoch: int, step: int, batch: str) -> None:
    if batch != _batch(db, step):
        raise Refused("WrongBatch", f"step {step} has batch {_batch(db, step)}, not {batch}")
    if (epoch,) != db.execute("SELECT epoch FROM leases WHERE step = ?", (step,)).fetchone():
        raise Refused("NotLeased", f"epoch {epoch} does not hold the batch of step {step}: take it first")
