"""The ledger's rules as tables, and what a file knows after it is opened again."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from dataclasses import replace

import pytest

from robustrl.audit import record, report
from robustrl.audit.record import BadLedger
from robustrl.managers import batches, fence, groups, ledger
from robustrl.managers.config import ConfigError
from robustrl.managers.groups import SampleId, Trajectory, Turn
from robustrl.managers.ledger import CannotOpen, Ledger
from robustrl.managers.refusal import Fenced, Refused
from robustrl.managers.schema import SCHEMA, VERSION
from robustrl.managers.versions import Announcement, announce, newest_announcement
from robustrl_api.version import Version


@pytest.fixture
async def book(tmp_path):
    opened = Ledger(tmp_path / "ledger.sqlite")
    yield opened
    await opened.close()


def ready_group(db, index: int, samples: int = 2) -> None:
    groups.start(db, index, samples)
    for sample in range(samples):
        finish(db, index, sample)


def finish(db, index: int, sample: int) -> bool:
    return groups.finish(
        db, Trajectory(f"{index}-{sample}", index, sample, [1, 2], [0, 1], [0.0, -1.0], ["0.0", "0.0"], 1.0)
    )


def commit(db, step: int = 0, epoch: int = 0, batch: str | None = None) -> int:
    batch = batch or db.execute("SELECT batch FROM batches WHERE step = ?", (step,)).fetchone()[0]
    return batches.commit(
        db, epoch=epoch, step=step, batch=batch, digests={"0": "d"}, metrics={}, now=1.0, keep_batches=5
    )


def audit(db) -> dict:
    """Of a ledger whose prompts have two samples each."""
    db.execute("INSERT OR IGNORE INTO meta VALUES ('samples_per_prompt', '2')")
    return report.as_json(report.of(record.of(db)))


async def test_the_fence_rises_and_never_falls(book):
    await book.run(lambda db: fence.admit(db, 2))
    await book.run(lambda db: fence.admit(db, 2))
    with pytest.raises(Fenced) as refused:
        await book.run(lambda db: fence.admit(db, 1))
    assert refused.value.body() == {"error": "Fenced", "message": str(refused.value), "epoch": 2}
    assert await book.run(fence.current) == 2


async def test_a_refused_message_changes_nothing(book):
    """The fence and the write it protects are one transaction: neither happens without the other."""
    with pytest.raises(Refused, match="not the next one"):
        await book.run(lambda db: batches.lease(db, 3, 7, 1))
    assert await book.run(fence.current) == 0


async def test_batches_take_whole_groups_in_completion_order(book):
    for index in range(3):
        await book.run(lambda db, i=index: groups.start(db, i, 2))
    for index, sample in [(2, 0), (0, 0), (2, 1), (1, 0), (0, 1)]:
        await book.run(lambda db, i=index, s=sample: finish(db, i, s))
    batch = await book.run(lambda db: batches.lease(db, 0, 0, 2))
    rows = await book.run(lambda db: batches.trajectories(db, 0, 0, 1))
    assert batch.startswith("0-")
    assert [row["id"] for row in rows] == ["0-0", "0-1", "2-0", "2-1"]


async def test_no_batch_before_enough_groups_are_ready(book):
    await book.run(lambda db: ready_group(db, 0))
    assert await book.run(lambda db: batches.lease(db, 0, 0, 2)) is None


async def test_slices_are_deterministic_disjoint_and_keep_groups_whole(book):
    for index in range(5):
        await book.run(lambda db, i=index: ready_group(db, i))
    await book.run(lambda db: batches.lease(db, 0, 0, 5))
    slices = [await book.run(lambda db, r=rank: batches.trajectories(db, 0, r, 2)) for rank in range(2)]
    assert [[row["prompt_index"] for row in part] for part in slices] == [[0, 0, 2, 2, 4, 4], [1, 1, 3, 3]]


async def test_a_newer_epoch_gets_the_same_batch_and_voids_the_lease(book):
    for index in range(4):
        await book.run(lambda db, i=index: ready_group(db, i))
    first = await book.run(lambda db: batches.lease(db, 0, 0, 2))
    await book.run(lambda db: fence.admit(db, 1))
    with pytest.raises(Fenced):
        await book.run(lambda db: commit(db, epoch=0, batch=first))
    with pytest.raises(Refused, match="take it first"):
        await book.run(lambda db: commit(db, epoch=1, batch=first))
    assert await book.run(lambda db: batches.lease(db, 1, 0, 2)) == first
    assert await book.run(lambda db: commit(db, epoch=1, batch=first)) == 1


async def test_a_commit_is_idempotent_and_only_for_the_very_same(book):
    await book.run(lambda db: ready_group(db, 0))
    batch = await book.run(lambda db: batches.lease(db, 0, 0, 1))
    assert await book.run(commit) == 1
    assert await book.run(lambda db: commit(db, batch=batch)) == 1
    with pytest.raises(Refused, match="not the next one"):
        await book.run(lambda db: commit(db, batch="other"))
    with pytest.raises(Refused, match="not the next one"):
        await book.run(lambda db: commit(db, epoch=1, batch=batch))
    assert len(await book.run(batches.curve)) == 1


async def test_a_commit_of_another_batch_is_refused(book):
    await book.run(lambda db: ready_group(db, 0))
    await book.run(lambda db: batches.lease(db, 0, 0, 1))
    with pytest.raises(Refused, match="has batch"):
        await book.run(lambda db: commit(db, batch="0-else"))
    assert (await book.run(lambda db: audit(db)))["trajectories"]["leased"] == 2


@pytest.mark.parametrize(
    ("committed", "before", "version", "reason"),
    [
        (0, None, Version(0, 0), None),
        (0, None, Version(0, 1), "NotCommitted"),
        (1, None, Version(0, 1), None),
        (1, None, Version(3, 1), None),
        (1, Version(0, 1), Version(1, 1), None),
        (1, Version(0, 1), Version(0, 1), None),
        (1, Version(0, 1), Version(0, 0), "Superseded"),
        (1, Version(2, 1), Version(1, 1), "Fenced"),
        (1, None, Version(1, 2), "NotCommitted"),
    ],
)
async def test_a_version_exists_only_where_its_step_is_committed(book, committed, before, version, reason):
    for step in range(committed):
        await book.run(lambda db, s=step: ready_group(db, s))
        await book.run(lambda db, s=step: batches.lease(db, 0, s, 1))
        await book.run(lambda db, s=step: commit(db, s))
    if before:
        await book.run(lambda db: announce(db, Announcement(before, "r", None)))
    if reason is None:
        await book.run(lambda db: announce(db, Announcement(version, "r", None)))
        assert (await book.run(newest_announcement)).version == version
    else:
        with pytest.raises(Refused) as refused:
            await book.run(lambda db: announce(db, Announcement(version, "r", None)))
        assert refused.value.reason == reason


async def test_a_file_that_is_opened_again_knows_everything(tmp_path):
    book = Ledger(tmp_path / "l.sqlite")
    sample = SampleId(1, 0)
    await book.run(lambda db: ready_group(db, 0))
    await book.run(lambda db: groups.start(db, 1, 2))
    await book.run(lambda db: groups.save_turn(db, sample, 0, "c", Turn([1], [-1.0], ("0.0", "0.0"))))
    batch = await book.run(lambda db: batches.lease(db, 4, 0, 1), durable=True)
    # Not closed: the process is gone, the file is as it was left.
    again = Ledger(tmp_path / "l.sqlite")
    assert await again.run(fence.current) == 4
    assert await again.run(groups.unfinished) == [SampleId(1, 0), SampleId(1, 1)]
    assert (await again.run(lambda db: groups.saved_turns(db, sample)))[0].turn.versions == ("0.0", "0.0")
    assert await again.run(lambda db: batches.lease(db, 4, 0, 1)) == batch
    await again.close()
    await book.close()


async def test_a_saved_turn_voids_those_after_it(book):
    sample = SampleId(0, 0)
    await book.run(lambda db: groups.start(db, 0, 1))
    for number, token in [(0, 1), (1, 2), (2, 3), (1, 4)]:
        turn = Turn([token], [-1.0], ("0.0", "0.0"))
        await book.run(lambda db, n=number, t=turn: groups.save_turn(db, sample, n, "c", t))
    assert [saved.turn.tokens for saved in await book.run(lambda db: groups.saved_turns(db, sample))] == [[1], [4]]


async def test_a_failed_group_is_discarded_and_late_samples_are_ignored(book):
    await book.run(lambda db: groups.start(db, 0, 2))
    await book.run(lambda db: finish(db, 0, 0))
    assert await book.run(lambda db: groups.fail(db, 0, "boom"))
    assert not await book.run(lambda db: groups.fail(db, 0, "again"))
    assert not await book.run(lambda db: finish(db, 0, 1))
    assert await book.run(groups.last_error) == "boom"
    result = await book.run(lambda db: audit(db))
    assert result["ok"]
    assert result["trajectories"]["discarded"] == 2


async def test_old_payloads_are_dropped_and_the_audit_still_holds(book):
    for step in range(7):
        await book.run(lambda db, s=step: ready_group(db, s))
        await book.run(lambda db, s=step: batches.lease(db, 0, s, 1))
        await book.run(lambda db, s=step: commit(db, s))
    kept = await book.run(
        lambda db: db.execute("SELECT COUNT(*) FROM trajectories WHERE payload IS NOT NULL").fetchone()
    )
    assert kept == (10,)
    assert (await book.run(lambda db: audit(db)))["ok"]


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        ("INSERT INTO batch_groups VALUES (1, 0)", "TrainedTwice"),
        ("DELETE FROM groups WHERE prompt_index = 1", "Lost"),
        ("DELETE FROM trajectories WHERE prompt_index = 0 AND sample = 1", "Lost"),
        ("UPDATE trajectories SET state = 'ready' WHERE prompt_index = 0", "Lost"),
        ("UPDATE trajectories SET state = 'consumed' WHERE prompt_index = 2", "Lost"),
    ],
)
async def test_the_audit_finds_damage(book, damage, finding):
    for step in range(2):
        await book.run(lambda db, s=step: ready_group(db, s))
        await book.run(lambda db, s=step: batches.lease(db, 0, s, 1))
        await book.run(lambda db, s=step: commit(db, s))
    await book.run(lambda db: groups.start(db, 2, 2))
    assert (await book.run(lambda db: audit(db)))["ok"]
    await book.run(lambda db: db.execute(damage))
    result = await book.run(lambda db: audit(db))
    assert not result["ok"]
    assert finding in {each["kind"] for each in result["findings"]}


async def test_a_ledger_of_another_shape_is_refused(book, config):
    await book.run(lambda db: ledger.claim(db, config))
    await book.run(lambda db: ledger.claim(db, replace(config, steps=99)))
    with pytest.raises(ConfigError, match="prompts_per_step = 2"):
        await book.run(lambda db: ledger.claim(db, replace(config, prompts_per_step=3)))


async def test_a_full_volume_is_told_as_such(tmp_path):
    """SQLite had given the transaction up by itself, and taking it back failed with an error of its own."""
    ledger = Ledger(tmp_path / "ledger.sqlite")

    def leave_room_for_one_page(db):
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + 1}")

    def write_much(db):
        db.execute("INSERT INTO meta VALUES ('much', ?)", ("x" * 100_000,))

    await ledger.run(leave_room_for_one_page)
    written = await asyncio.gather(
        ledger.run(lambda db: db.execute("INSERT INTO meta VALUES ('before', '')")),
        ledger.run(write_much),
        ledger.run(lambda db: db.execute("INSERT INTO meta VALUES ('after', '')")),
        return_exceptions=True,
    )
    assert [str(error) for error in written] == ["database or disk is full"] * 3, "who shared it is told the same"
    assert await ledger.run(lambda db: db.execute("SELECT COUNT(*) FROM meta").fetchone()) == (0,)
    await ledger.close()


async def test_a_ledger_of_before_there_were_versions_is_taken_as_the_first(tmp_path):
    """Also one whose managers did not have all tables yet."""
    with contextlib.closing(sqlite3.connect(tmp_path / "l.sqlite")) as db:
        db.executescript(SCHEMA)
        db.execute("INSERT INTO epochs VALUES (3, 7)")
        db.execute("DROP TABLE rollbacks")
        db.commit()
    book = Ledger(tmp_path / "l.sqlite")
    assert await book.run(lambda db: db.execute("PRAGMA user_version").fetchone()) == (VERSION,)
    assert await book.run(lambda db: db.execute("SELECT * FROM epochs").fetchall()) == [(3, 7)]
    assert await book.run(lambda db: db.execute("SELECT * FROM rollbacks").fetchall()) == []
    await book.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        pytest.param(
            f"PRAGMA user_version = {VERSION + 1}",
            rf"has schema version {VERSION + 1}, and this release knows those up to {VERSION}: a newer release .* use",
            id="of a newer release",
        ),
        pytest.param(
            "CREATE TABLE epochs (epoch INTEGER)",
            r"is no ledger that this release knows: its tables are others \(epochs\); give another file",
            id="other columns",
        ),
        pytest.param("CREATE TABLE songs (title TEXT)", r".* its tables are others \(songs\)", id="of another program"),
    ],
)
def test_a_file_that_these_managers_cannot_go_on_with_is_refused_and_left_as_it_is(tmp_path, statement, words):
    path = tmp_path / "l.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(statement)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=f"the ledger {path} {words}"):
        Ledger(path)
    with pytest.raises(BadLedger, match=f"{path} {words}"):
        record.read(path)
    assert path.read_bytes() == before


def test_a_ledger_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(CannotOpen, match=f"the ledger {tmp_path}/away/ledger.sqlite cannot be opened: unable to open"):
        Ledger(tmp_path / "away" / "ledger.sqlite")
    (tmp_path / "notes.txt").write_text("no ledger" * 1000)
    with pytest.raises(CannotOpen, match=r"notes.txt cannot be opened: file is not a database"):
        Ledger(tmp_path / "notes.txt")
