"""Going back to an older checkpoint: the same batches are trained again, once, and the file knows it."""

from __future__ import annotations

import pytest
from tests.managers.test_ledger import audit, commit, ready_group

from robustrl.managers import batches
from robustrl.managers.ledger import Ledger
from robustrl.managers.refusal import Fenced, Refused
from robustrl.managers.rollback import roll_back, undone_total

STEPS = 4


@pytest.fixture
async def book(tmp_path):
    """A ledger with four steps committed by epoch 1, and a group to spare."""
    opened = Ledger(tmp_path / "ledger.sqlite")
    for index in range(STEPS + 1):
        await opened.run(lambda db, i=index: ready_group(db, i))
    for step in range(STEPS):
        await train(opened, step, epoch=1)
    yield opened
    await opened.close()


async def train(book: Ledger, step: int, epoch: int) -> str:
    batch = await book.run(lambda db: batches.lease(db, epoch, step, 1))
    await book.run(lambda db: commit(db, step, epoch))
    return batch


async def test_the_older_checkpoint_is_the_newest_again(book):
    assert await book.run(lambda db: roll_back(db, 2, 2)) == 2
    assert await book.run(batches.next_step) == 2
    newest = await book.run(batches.newest_checkpoint)
    assert (newest.epoch, newest.step) == (1, 2)


async def test_the_steps_after_it_are_trained_again_on_the_same_batches_and_count_once(book):
    before = await book.run(lambda db: dict(db.execute("SELECT step, batch FROM batches").fetchall()))
    await book.run(lambda db: roll_back(db, 2, 2))
    assert [await train(book, step, epoch=2) for step in (2, 3)] == [before[2], before[3]]
    found = await book.run(lambda db: audit(db))
    assert found["ok"], found
    assert (found["trajectories"]["consumed"], found["undone"]) == (2 * STEPS, 2)


async def test_nothing_is_lost_in_between(book):
    await book.run(lambda db: roll_back(db, 2, 1))
    found = await book.run(lambda db: audit(db))
    assert found["ok"], found
    assert (found["trajectories"]["consumed"], found["trajectories"]["leased"]) == (2, 2 * (STEPS - 1))


async def test_saying_it_again_changes_nothing(book):
    assert await book.run(lambda db: roll_back(db, 2, 3)) == 1
    assert await book.run(lambda db: roll_back(db, 2, 3)) == 0
    assert await book.run(undone_total) == 1


async def test_an_older_epoch_takes_nothing_back(book):
    await book.run(lambda db: roll_back(db, 2, 3))
    with pytest.raises(Fenced):
        await book.run(lambda db: roll_back(db, 1, 0))
    assert await book.run(batches.next_step) == 3


async def test_too_long_ago_is_refused_whole(book):
    """Payloads of old steps are dropped; without them a step cannot be trained again."""
    for index in range(STEPS + 1, 9):
        await book.run(lambda db, i=index: ready_group(db, i))
    for step in range(STEPS, 8):
        await train(book, step, epoch=1)
    with pytest.raises(Refused, match="step 2 is not kept"):
        await book.run(lambda db: roll_back(db, 2, 1))
    assert await book.run(batches.next_step) == 8, "all or nothing"
    assert await book.run(lambda db: roll_back(db, 2, 3)) == 5


async def test_a_restart_of_the_managers_remembers(book, tmp_path):
    await book.run(lambda db: roll_back(db, 2, 1), durable=True)
    again = Ledger(tmp_path / "ledger.sqlite")
    assert await again.run(batches.next_step) == 1
    await again.close()
