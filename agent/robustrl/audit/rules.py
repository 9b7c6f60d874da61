"""The rules of the proof, each a pure function of the record.

Together they show: the surviving history is steps 0, 1, 2 ... without a gap, each committed once by the epoch that
ruled then, each on the batch that was fixed for it and whose content is unchanged; and every trajectory that was ever
begun is in exactly one of them, or still waits for one, or was given up. States that the managers wrote are not
trusted: they are compared with what the batches of the committed steps say.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator

from robustrl.audit.finding import Finding, Kind
from robustrl.audit.record import Batch, Commit, Record, Turn
from robustrl.managers.batches import name_of

Rule = Callable[[Record], Iterator[Finding]]

_HELD = ("leased", "consumed")
"""States that only a batch gives."""


def findings(record: Record) -> tuple[Finding, ...]:
    """Everything that is wrong, rule by rule."""
    return tuple(finding for rule in RULES for finding in rule(record))


def steps_are_complete(record: Record) -> Iterator[Finding]:
    present = Counter(commit.step for commit in record.commits)
    for step in range(record.next_step):
        if not present[step]:
            yield Finding(Kind.MISSING_STEP, f"step {step} was never committed, though later ones were", step)
        elif present[step] > 1:
            yield Finding(Kind.COMMITTED_TWICE, f"step {step} was committed {present[step]} times", step)


def epochs_ruled_when_they_committed(record: Record) -> Iterator[Finding]:
    """Once an epoch has begun at a step, or gone back to one, no older epoch commits that step or a later one."""
    turns = deque(sorted((*record.epochs, *record.rollbacks, *map(_turn, record.commits)), key=lambda turn: turn.step))
    ruling = Turn(0, 0)
    for commit in record.commits:
        while turns and turns[0].step <= commit.step:
            ruling = max(turns.popleft(), ruling, key=lambda turn: turn.epoch)
        if commit.epoch < ruling.epoch:
            over = f"which was over since epoch {ruling.epoch} came at step {ruling.step}"
        elif commit.epoch > record.fence:
            over = "which was never let pass"
        else:
            continue
        yield Finding(
            Kind.STALE_EPOCH, f"step {commit.step} was committed by epoch {commit.epoch}, {over}", commit.step
        )


def _turn(commit: Commit) -> Turn:
    return Turn(commit.epoch, commit.step)


def commits_are_of_the_fixed_batches(record: Record) -> Iterator[Finding]:
    for commit in record.commits:
        batch = record.batches.get(commit.step)
        if batch is None or not batch.groups:
            yield Finding(Kind.WRONG_BATCH, f"step {commit.step} was committed and has no batch", commit.step)
        elif batch.name != commit.batch:
            what = f"step {commit.step} was committed with batch {commit.batch}, but has {batch.name}"
            yield Finding(Kind.WRONG_BATCH, what, commit.step)


def batches_are_what_their_names_say(record: Record) -> Iterator[Finding]:
    for step, batch in record.batches.items():
        if batch.name and not _says(step, batch):
            kept = "its prompts or its trajectories" if batch.content else "its prompts"
            yield Finding(Kind.ALTERED_BATCH, f"batch {batch.name} of step {step}: {kept} were altered since", step)


def _says(step: int, batch: Batch) -> bool:
    """Of a batch whose trajectories are not kept only the prompts can be checked."""
    content = batch.content or batch.name.rpartition("-")[2]
    return batch.name == name_of(step, batch.groups, content)


def prompts_are_trained_once(record: Record) -> Iterator[Finding]:
    steps: dict[int, list[int]] = defaultdict(list)
    for commit in record.commits:
        for prompt in _prompts(record, commit):
            steps[prompt].append(commit.step)
    for prompt, trained in sorted(steps.items()):
        if len(trained) > 1:
            what = f"the trajectories of prompt {prompt} were trained on in steps {_listed(trained)}"
            yield Finding(Kind.TRAINED_TWICE, what, trained[-1])


def prompts_are_not_lost(record: Record) -> Iterator[Finding]:
    """Prompts are begun in order without gaps, each with all its samples."""
    for prompt in range(max(record.samples, default=-1) + 1):
        found = sum(record.samples.get(prompt, {}).values())
        if found != record.samples_per_prompt:
            what = f"prompt {prompt} has {found} trajectories instead of {record.samples_per_prompt}"
            yield Finding(Kind.LOST, what)


def states_agree_with_batches(record: Record) -> Iterator[Finding]:
    expected = _expected_states(record)
    for prompt, states in sorted(record.samples.items()):
        wanted = expected.get(prompt)
        wrong = [state for state in states if (state != wanted if wanted else state in _HELD)]
        if wrong:
            be = f"should be {wanted}" if wanted else "are in no batch"
            yield Finding(Kind.LOST, f"trajectories of prompt {prompt} are {_listed(wrong)} and {be}")


def _expected_states(record: Record) -> dict[int, str]:
    """State of each prompt that a batch holds: consumed by a committed step, else held for the step to come."""
    expected = {prompt: "leased" for batch in record.batches.values() for prompt in batch.groups}
    return expected | {prompt: "consumed" for commit in record.commits for prompt in _prompts(record, commit)}


def commits_name_their_checkpoints(record: Record) -> Iterator[Finding]:
    for commit in record.commits:
        if not commit.digests or not all(commit.digests.values()):
            yield Finding(
                Kind.NO_DIGEST, f"step {commit.step} was committed without its checkpoint's digest", commit.step
            )


RULES: tuple[Rule, ...] = (
    steps_are_complete,
    epochs_ruled_when_they_committed,
    commits_are_of_the_fixed_batches,
    batches_are_what_their_names_say,
    prompts_are_trained_once,
    prompts_are_not_lost,
    states_agree_with_batches,
    commits_name_their_checkpoints,
)


def _prompts(record: Record, commit: Commit) -> tuple[int, ...]:
    batch = record.batches.get(commit.step)
    return batch.groups if batch else ()


def _listed(words: list[int] | list[str]) -> str:
    return ", ".join(map(str, words))
