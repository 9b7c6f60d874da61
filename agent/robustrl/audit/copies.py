"""Checkpoints on storage against the digests that the ledger accepted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from robustrl.audit.finding import Finding, Kind
from robustrl.audit.record import Commit, Record
from robustrl.checkpoint.folder import BadCopy, read_manifest, verify
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.version import Version

TAKEN_OFF_SECONDS = 1.0
"""A checkpoint that looks damaged may be one that is just being taken off the shelf."""


@dataclass(frozen=True, slots=True)
class Copies:
    """What storage holds.

    Attributes:
        good: versions of which every part there is byte for byte what was committed.
        unknown: parts of versions that the ledger never accepted: late writes of pods that were leaving. Nobody
            restores them.
    """

    good: tuple[Version, ...] = ()
    unknown: tuple[Version, ...] = ()
    findings: tuple[Finding, ...] = ()


def check(
    record: Record, shelf: Shelf, versions: Sequence[Version], wait: Callable[[float], None] = time.sleep
) -> Copies:
    """Read every byte of these checkpoints.

    Args:
        versions: what was on the shelf before the ledger was read: of a job that goes on it may have newer ones now,
            and others of these may have been taken off meanwhile.
    """
    roots = _roots((*record.commits, *record.undone))
    found: list[Finding] = []
    good, unknown = [], []
    for version in versions:
        if version not in roots:
            unknown.append(version)
            continue
        problems = list(_problems(shelf, version, roots[version]))
        if problems:
            wait(TAKEN_OFF_SECONDS)
            problems = list(_problems(shelf, version, roots[version]))
        found += problems
        if not problems and shelf.copies(version):
            good.append(version)
    return Copies(tuple(good), tuple(unknown), (*found, *_behind(record, unknown)))


def _roots(commits: tuple[Commit, ...]) -> dict[Version, frozenset[str]]:
    """A version may have been committed, undone, and never be again: paths carry the epoch."""
    roots: dict[Version, frozenset[str]] = {}
    for commit in commits:
        roots[commit.version] = roots.get(commit.version, frozenset()) | frozenset(commit.digests.values())
    return roots


def _problems(shelf: Shelf, version: Version, roots: frozenset[str]) -> Iterator[Finding]:
    for folder in shelf.copies(version):
        try:
            if read_manifest(folder).root not in roots:
                what = f"{folder} is not the checkpoint that step {version.step - 1} committed"
                yield Finding(Kind.OTHER_CHECKPOINT, what, version.step - 1)
                continue
            verify(folder, roots)
        except BadCopy as error:
            yield Finding(Kind.DAMAGED_CHECKPOINT, str(error), version.step - 1)


def _behind(record: Record, unknown: list[Version]) -> Iterator[Finding]:
    """One step that was under way may have left its checkpoint; more cannot."""
    newest = max((version.step for version in unknown), default=0)
    if newest > record.next_step + 1:
        what = f"storage has a checkpoint of {newest} steps, the ledger ends at {record.next_step}: it is an older copy"
        yield Finding(Kind.LEDGER_BEHIND, what)
