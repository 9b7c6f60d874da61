"""Checkpoints on storage against the digests that the ledger accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from robustrl.audit.finding import Finding, Kind
from robustrl.audit.record import Commit, Record
from robustrl.checkpoint.folder import BadCopy, read_manifest, verify
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.version import Version


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


def check(record: Record, shelf: Shelf) -> Copies:
    """Read every byte of every checkpoint on the shelf."""
    roots = _roots((*record.commits, *record.undone))
    found: list[Finding] = []
    good, unknown = [], []
    for version in shelf.versions():
        if version not in roots:
            unknown.append(version)
            continue
        problems = list(_problems(shelf, version, roots[version]))
        found += problems
        if not problems:
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
