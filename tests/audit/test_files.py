"""Ledgers and checkpoints as files: damage, copies beside a writer, and where a replay may begin."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.test_checkpoint import damage, made
from tests.managers.test_ledger import audit, ready_group

from robustrl.audit import copies, record, replay, report, snapshot
from robustrl.audit.copies import Copies
from robustrl.audit.finding import Kind
from robustrl.audit.record import BadLedger, Commit
from robustrl.audit.replay import CannotReplay
from robustrl.checkpoint.shelf import Shelf
from robustrl.managers import batches, fence
from robustrl.managers.ledger import Ledger
from robustrl.managers.rollback import roll_back
from robustrl_api.version import Version

STEPS, KEPT = 8, 5


@pytest.fixture
async def book(tmp_path: Path, storage: Shelf) -> AsyncIterator[Ledger]:
    """Eight committed steps, the checkpoints of the last three on storage; epoch 2 began at step 6."""
    opened = Ledger(tmp_path / "ledger.sqlite")
    for step in range(STEPS):
        epoch = 1 if step < 6 else 2
        root = made(storage, Version(epoch, step + 1), content=b"state %d" % step)
        await opened.run(lambda db, s=step: ready_group(db, s))
        await opened.run(lambda db, s=step, e=epoch, r=root: train(db, s, e, r))
    await opened.run(audit)  # which writes the job's shape
    storage.prune(Version(2, STEPS))
    yield opened
    await opened.close()


@pytest.fixture
def storage(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "storage", keep=3)


@pytest.fixture
def ledger(tmp_path: Path, book: Ledger) -> Path:
    return tmp_path / "ledger.sqlite"


def train(db: sqlite3.Connection, step: int, epoch: int, root: str) -> int:
    batch = batches.lease(db, epoch, step, 1)
    assert batch is not None
    return batches.commit(
        db, epoch=epoch, step=step, batch=batch, digests={"0": root}, metrics={}, now=1.0, keep_batches=KEPT
    )


def test_a_ledger_in_use_is_read_beside_its_writer(ledger: Path, storage: Shelf) -> None:
    found = record.read(ledger)
    result = report.of(found, checked(ledger, storage))
    assert result.ok, result.findings
    assert result.steps == STEPS
    assert result.replayable_from == STEPS - KEPT
    assert result.copies is not None
    assert result.copies.good == (Version(1, 6), Version(2, 7), Version(2, 8))


async def test_what_is_written_is_what_the_rules_read(book: Ledger, ledger: Path) -> None:
    await book.run(lambda db: roll_back(db, 3, 5))
    await book.run(lambda db: train(db, 5, 3, "again"))
    found = record.read(ledger)
    assert report.of(found).ok
    assert [(turn.epoch, turn.step) for turn in found.epochs] == [(1, 0), (2, 6), (3, 8)]
    assert [(turn.epoch, turn.step) for turn in found.rollbacks] == [(3, 5)]
    assert [commit.step for commit in found.undone] == [7, 6, 5]
    assert found.commits[-1].epoch == 3
    await book.run(lambda db: db.execute("UPDATE commits SET epoch = 2 WHERE step = 5"))
    assert {finding.kind for finding in report.of(record.read(ledger)).findings} == {Kind.STALE_EPOCH}


async def test_one_altered_character_of_a_trajectory_is_found(book: Ledger, ledger: Path) -> None:
    await book.run(lambda db: db.execute("UPDATE trajectories SET payload = replace(payload, '[1, 2]', '[1, 3]')"
                                         " WHERE prompt_index = 4 AND sample = 1"))  # fmt: skip
    found = report.of(record.read(ledger))
    assert [(finding.kind, finding.step) for finding in found.findings] == [(Kind.ALTERED_BATCH, 4)]


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.01])
async def test_a_truncated_ledger_is_said_to_be_one(book: Ledger, ledger: Path, tmp_path: Path, keep: float) -> None:
    copy = tmp_path / "copy.sqlite"
    snapshot.take(ledger, copy)
    data = copy.read_bytes()
    copy.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(BadLedger, match="copy it again"):
        record.read(copy)


def test_what_is_no_ledger_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a ledger " * 100)
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    Ledger(tmp_path / "unused.sqlite")
    for name, words in (
        ("absent", "does not exist"), ("text", "cannot be read"), ("empty.sqlite", "no such table"),
        ("unused.sqlite", "no job in it"),
    ):  # fmt: skip
        with pytest.raises(BadLedger, match=words):
            record.read(tmp_path / name)


def test_a_copy_that_nobody_may_write_beside_is_read(ledger: Path, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    snapshot.take(ledger, folder / "ledger.sqlite")
    folder.chmod(0o500)
    assert record.read(folder / "ledger.sqlite").next_step == STEPS
    folder.chmod(0o700)


# Checkpoints.


def checked(ledger: Path, storage: Shelf) -> Copies:
    """Of a job that is over."""
    return copies.check(record.read(ledger), storage, storage.versions(), wait=lambda seconds: None)


def test_a_damaged_checkpoint_is_found(ledger: Path, storage: Shelf) -> None:
    damage(storage, Version(2, 7))
    found = checked(ledger, storage)
    assert [(finding.kind, finding.step) for finding in found.findings] == [(Kind.DAMAGED_CHECKPOINT, 6)]
    assert found.good == (Version(1, 6), Version(2, 8))


def test_another_checkpoint_under_a_committed_name_is_found(ledger: Path, storage: Shelf) -> None:
    made(storage, Version(2, 7), rank=1, content=b"something else")
    found = checked(ledger, storage)
    assert [(finding.kind, finding.step) for finding in found.findings] == [(Kind.OTHER_CHECKPOINT, 6)]


def test_a_late_write_that_was_never_committed_is_told_and_is_no_finding(ledger: Path, storage: Shelf) -> None:
    made(storage, Version(1, 9))
    found = checked(ledger, storage)
    assert (found.unknown, found.findings) == ((Version(1, 9),), ())


def test_a_job_that_goes_on_is_no_finding(ledger: Path, storage: Shelf) -> None:
    """Its oldest checkpoint is half taken off when it is looked at, and newer ones have come."""
    oldest = storage.root / str(Version(1, 6))
    (storage.folder(Version(1, 6), 0) / "rng").unlink()
    before = storage.versions()
    made(storage, Version(2, 20))
    found = copies.check(record.read(ledger), storage, before, wait=lambda seconds: shutil.rmtree(oldest))
    assert found.findings == ()
    assert found.good == (Version(2, 7), Version(2, 8))


def test_a_ledger_older_than_its_storage_is_found(ledger: Path, storage: Shelf) -> None:
    made(storage, Version(2, 12))
    found = checked(ledger, storage)
    assert [finding.kind for finding in found.findings] == [Kind.LEDGER_BEHIND]


# Where a replay begins.


async def test_a_replay_begins_with_the_batches_as_they_were(book: Ledger, ledger: Path, tmp_path: Path) -> None:
    recorded = replay.prepare(ledger, tmp_path / "replay.sqlite", 5)
    assert [(commit.step, commit.epoch) for commit in recorded] == [(5, 1), (6, 2), (7, 2)]
    again = Ledger(tmp_path / "replay.sqlite")
    assert await again.run(batches.next_step) == 5
    assert await again.run(fence.current) == 0
    for commit in recorded:
        assert await again.run(lambda db, c=commit: batches.lease(db, 1, c.step, 1)) == commit.batch
        await again.run(lambda db, c=commit: train(db, c.step, 1, c.digests["0"]))
    assert replay.difference(recorded, replay.commits_since(tmp_path / "replay.sqlite", 5)) is None
    assert report.of(record.read(tmp_path / "replay.sqlite")).ok
    await again.close()
    assert record.read(ledger).next_step == STEPS, "the job's own ledger is only read"


@pytest.mark.parametrize(("first", "words"), [(2, "step 2 is not kept.*keepBatches"), (8, "nothing to replay")])
def test_a_replay_that_cannot_begin_says_why(ledger: Path, tmp_path: Path, first: int, words: str) -> None:
    with pytest.raises(CannotReplay, match=words):
        replay.prepare(ledger, tmp_path / "replay.sqlite", first)


def test_it_begins_as_early_as_batches_and_checkpoints_allow(ledger: Path, storage: Shelf) -> None:
    found = record.read(ledger)
    result = report.of(found, checked(ledger, storage))
    assert replay.choose_start(result) == 6
    assert replay.choose_start(replace(result, replayable_from=0)) == 0
    with pytest.raises(CannotReplay, match="keepBatches"):
        replay.choose_start(replace(result, replayable_from=None))
    with pytest.raises(CannotReplay, match="no good checkpoint"):
        replay.choose_start(replace(result, copies=None))


def commit(step: int, digest: str) -> Commit:
    return Commit(step, 1, "batch", {"0": digest})


@pytest.mark.parametrize(
    ("replayed", "step"),
    [
        ("", None),
        ("ab", None),
        ("abc", None),
        ("xbc", 4),
        ("abx", 6),
        ("axx", 5),
    ],
)
def test_the_first_step_that_differs_is_named(replayed: str, step: int | None) -> None:
    recorded = tuple(commit(4 + place, digest) for place, digest in enumerate("abc"))
    found = replay.difference(recorded, tuple(commit(4 + place, digest) for place, digest in enumerate(replayed)))
    assert (found.step if found else None) == step
