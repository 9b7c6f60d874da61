"""Each kind of damage to a history is found, and by its own rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from robustrl.audit import report, rules
from robustrl.audit.finding import Kind
from robustrl.audit.record import Batch, Commit, Record, Turn
from robustrl.managers.batches import name_of

STEPS, SAMPLES = 6, 2
CONTENT = "c" * 32


def batch(step: int, *groups: int, content: str = CONTENT) -> Batch:
    return Batch(name_of(step, groups, content), groups, content)


def healthy() -> Record:
    """Six steps of two prompts each. Epoch 2 began at step 2; epoch 3 went back from 4 to 3; step 6 is held for it."""
    batches = {step: batch(step, 2 * step, 2 * step + 1) for step in range(STEPS + 1)}
    epochs = (1, 1, 2, 3, 3, 3)
    commits = tuple(Commit(step, epochs[step], batches[step].name, {"0": f"root {step}"}) for step in range(STEPS))
    consumed = {prompt: {"consumed": SAMPLES} for prompt in range(2 * STEPS)}
    waiting = {12: {"leased": 2}, 13: {"leased": 2}, 14: {"ready": 1, "running": 1}, 15: {"discarded": 2}}
    return Record(
        samples_per_prompt=SAMPLES,
        fence=3,
        commits=commits,
        undone=(replace(commits[3], epoch=2),),
        epochs=(Turn(1, 0), Turn(2, 2), Turn(3, 4)),
        rollbacks=(Turn(3, 3),),
        batches=batches,
        samples=consumed | waiting,
    )


def with_commit(record: Record, step: int, **changes: object) -> Record:
    altered = tuple(replace(each, **changes) if each.step == step else each for each in record.commits)
    return replace(record, commits=altered)


def with_batch(record: Record, step: int, altered: Batch) -> Record:
    return replace(record, batches=record.batches | {step: altered})


def with_samples(record: Record, prompt: int, **states: int) -> Record:
    return replace(record, samples=record.samples | {prompt: states})


def consumed_twice(record: Record) -> Record:
    """Step 5 took prompt 4, which step 2 had; its name and commit agree, so nothing else tells."""
    again = batch(5, 4, 11)
    return with_commit(with_samples(with_batch(record, 5, again), 10, ready=2), 5, batch=again.name)


def without(record: Record, step: int) -> Record:
    return replace(record, commits=tuple(each for each in record.commits if each.step != step))


DAMAGES: dict[str, tuple[Callable[[Record], Record], set[Kind], int | None]] = {
    "a prompt trained on in two steps": (consumed_twice, {Kind.TRAINED_TWICE}, 5),
    "a step in the middle is missing": (lambda r: without(r, 2), {Kind.MISSING_STEP, Kind.LOST}, 2),
    "the newest commit is cut off": (lambda r: without(r, 5), {Kind.LOST}, None),
    "a step committed twice": (
        lambda r: replace(r, commits=(*r.commits[:3], r.commits[2], *r.commits[3:])),
        {Kind.COMMITTED_TWICE, Kind.TRAINED_TWICE},
        2,
    ),
    "an epoch that was over commits, between newer ones": (
        lambda r: with_commit(r, 4, epoch=2), {Kind.STALE_EPOCH}, 4,
    ),
    "an epoch that was over commits, though no newer one did yet": (
        lambda r: replace(with_commit(r, 5, epoch=3), fence=4, epochs=(*r.epochs, Turn(4, 5))), {Kind.STALE_EPOCH}, 5,
    ),
    "an undone step is committed again by the epoch that lost it": (
        lambda r: with_commit(r, 3, epoch=2), {Kind.STALE_EPOCH}, 3,
    ),
    "an epoch that was never let pass commits": (lambda r: with_commit(r, 5, epoch=9), {Kind.STALE_EPOCH}, 5),
    "a commit of another batch": (lambda r: with_commit(r, 1, batch="1-else-where"), {Kind.WRONG_BATCH}, 1),
    "a commit without a batch": (
        lambda r: replace(r, batches={step: b for step, b in r.batches.items() if step != 1}),
        {Kind.WRONG_BATCH, Kind.LOST},
        1,
    ),
    "a prompt was put into a batch afterwards": (
        lambda r: with_samples(with_batch(r, 1, replace(r.batches[1], groups=(2, 3, 16))), 16, consumed=2),
        {Kind.ALTERED_BATCH},
        1,
    ),
    "a trajectory was altered": (
        lambda r: with_batch(r, 4, replace(r.batches[4], content="d" * 32)), {Kind.ALTERED_BATCH}, 4,
    ),
    "a name that is no batch's": (
        lambda r: with_commit(with_batch(r, 4, replace(r.batches[4], name="4")), 4, batch="4"), {Kind.ALTERED_BATCH}, 4,
    ),
    "a prompt is gone": (
        lambda r: replace(r, samples={p: s for p, s in r.samples.items() if p != 14}), {Kind.LOST}, None,
    ),
    "a sample is gone": (lambda r: with_samples(r, 14, ready=1), {Kind.LOST}, None),
    "consumed and in no batch": (lambda r: with_samples(r, 14, consumed=2), {Kind.LOST}, None),
    "in a committed batch and free to be taken again": (lambda r: with_samples(r, 0, ready=2), {Kind.LOST}, None),
    "held for a step to come and free to be taken": (lambda r: with_samples(r, 12, ready=2), {Kind.LOST}, None),
    "one sample of a group is not consumed": (lambda r: with_samples(r, 0, consumed=1, leased=1), {Kind.LOST}, None),
    "no digest": (lambda r: with_commit(r, 4, digests={}), {Kind.NO_DIGEST}, 4),
    "an empty digest": (lambda r: with_commit(r, 4, digests={"0": "root", "1": ""}), {Kind.NO_DIGEST}, 4),
}  # fmt: skip


def test_a_healthy_history_with_faults_in_it_is_clean() -> None:
    assert rules.findings(healthy()) == ()


def test_batches_whose_trajectories_were_dropped_are_no_finding() -> None:
    record = healthy()
    for step in range(3):
        record = with_batch(record, step, replace(record.batches[step], content=""))
    assert rules.findings(record) == ()
    assert report.of(record).replayable_from == 3


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(name: str) -> None:
    damage, kinds, step = DAMAGES[name]
    found = rules.findings(damage(healthy()))
    assert {finding.kind for finding in found} == kinds, found
    assert step is None or step in {finding.step for finding in found}


def test_the_report_tells_the_chain_of_epochs() -> None:
    found = report.of(healthy())
    assert [(reign.epoch, reign.first, reign.last) for reign in found.reigns] == [(1, 0, 1), (2, 2, 2), (3, 3, 5)]
    assert (found.steps, found.undone, found.final) == (6, 1, {"0": "root 5"})
    text = report.as_text(found)
    assert "6 steps (epoch 1: 0-1, epoch 2: 2-2, epoch 3: 3-5); 1 undone" in text
    assert "trained on exactly once" in text


def test_the_report_names_every_finding() -> None:
    found = report.of(consumed_twice(healthy()))
    assert not found.ok
    assert "the trajectories of prompt 4 were trained on in steps 2, 5" in report.as_text(found)
    assert report.as_json(found)["findings"][0]["kind"] == "TrainedTwice"


def test_an_empty_history_is_clean() -> None:
    found = report.of(Record(samples_per_prompt=2))
    assert found.ok
    assert (found.steps, found.replayable_from) == (0, None)
