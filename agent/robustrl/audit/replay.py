"""Training on the recorded batches again: what it begins with, and what its commits are compared with.

The replay is an ordinary job without rollouts on a copy of the ledger that was taken back to an earlier step. So the
managers serve each step the batch that it was trained on, and the same code that trained the job trains it again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

from robustrl.audit import snapshot
from robustrl.audit.finding import Finding, Kind
from robustrl.audit.record import Commit, commits, opened, read
from robustrl.audit.report import Replayed, Report
from robustrl.managers import fence, rollback
from robustrl.managers.refusal import Refused

KEEP_MORE = "with spec.data.keepBatches as large as spec.steps a job keeps all of them"


class CannotReplay(Exception):
    """There is nothing to begin a replay with; the text says what to do."""


def choose_start(report: Report) -> int:
    """The earliest step that can be begun with: its state is known, and the batches since then are kept.

    Raises:
        CannotReplay: there is none.
    """
    kept = report.replayable_from
    if kept is None:
        raise CannotReplay(f"the ledger keeps no batch that was trained on; {KEEP_MORE}")
    good = {version.step for version in report.copies.good} if report.copies else set()
    starts = [step for step in ({0} | good) if kept <= step < report.steps]
    if not starts:
        raise CannotReplay(
            f"batches are kept from step {kept} on, and storage has no good checkpoint to begin with there; {KEEP_MORE}"
        )
    return min(starts)


def prepare(source: Path, target: Path, first: int) -> tuple[Commit, ...]:
    """Write a ledger in which step `first` comes next, with the batches that the job was trained on from there.

    Returns:
        The commits that the replay has to repeat.

    Raises:
        CannotReplay: a batch is not kept any more, or there is no such step.
        BadLedger: the source cannot be read.
    """
    recorded = tuple(commit for commit in read(source).commits if commit.step >= first)
    if not recorded:
        raise CannotReplay(f"step {first} was not committed: there is nothing to replay from there on")
    snapshot.take(source, target)
    with contextlib.closing(sqlite3.connect(target)) as db, db:
        try:
            rollback.roll_back(db, fence.current(db), first)
        except Refused as refused:
            raise CannotReplay(f"{refused}; {KEEP_MORE}") from refused
        for table in ("leases", "epochs", "rollbacks", "undone", "versions"):
            db.execute(f"DELETE FROM {table}")
        # Its epochs are its own: they begin with 1 again.
        db.execute("DELETE FROM meta WHERE key = 'fence'")
    return recorded


def commits_since(ledger: Path, first: int) -> tuple[Commit, ...]:
    """What a replay has committed so far.

    Raises:
        BadLedger: its ledger cannot be read.
    """
    with opened(ledger) as db:
        return tuple(commit for commit in commits(db) if commit.step >= first)


def concluded(report: Report, recorded: tuple[Commit, ...], replayed: tuple[Commit, ...]) -> Report:
    """The report with what the replay found."""
    different = difference(recorded, replayed)
    steps = different.step - recorded[0].step if different and different.step is not None else len(replayed)
    found = (different,) if different else ()
    return replace(report, replayed=Replayed(recorded[0].step, steps), findings=report.findings + found)


def difference(recorded: tuple[Commit, ...], replayed: tuple[Commit, ...]) -> Finding | None:
    """The first step whose state is another one than the job committed, of those that both have."""
    for wanted, found in zip(recorded, replayed, strict=False):
        if (wanted.step, wanted.digests) != (found.step, found.digests):
            what = (
                f"the checkpoint after step {wanted.step} is {_digests(found)} in the replay, "
                f"the job committed {_digests(wanted)}"
            )
            return Finding(Kind.REPLAY_DIFFERS, what, wanted.step)
    return None


def _digests(commit: Commit) -> str:
    return "/".join(sorted(set(commit.digests.values()))) or "without a digest"
