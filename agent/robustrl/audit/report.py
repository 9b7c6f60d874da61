"""The audit's result: frozen, printed for people and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from robustrl.audit import record, rules
from robustrl.audit.copies import Copies
from robustrl.audit.finding import Finding
from robustrl.audit.record import Commit, Record
from robustrl.managers.batches import curve

STATES = ("running", "ready", "leased", "consumed", "discarded")


@dataclass(frozen=True, slots=True)
class Reign:
    """Steps in a row of the surviving history that one epoch committed."""

    epoch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """Steps that were trained again, up to the first whose state differed."""

    first: int
    steps: int


@dataclass(frozen=True)
class Report:
    """What was proved, and what was found wrong.

    Attributes:
        reigns: the surviving history as a chain of epochs.
        undone: steps that had to be trained again because no copy of their checkpoints was left, counted as often.
        trajectories: how many are in which state.
        replayable_from: the oldest step from which all batches are kept; None where the newest are not.
        final: digest of the newest checkpoint by rank.
        replayed: how many steps were trained again with the same states, if that was asked for.
    """

    steps: int
    reigns: tuple[Reign, ...]
    undone: int
    trajectories: dict[str, int]
    replayable_from: int | None
    final: dict[str, str]
    copies: Copies | None
    findings: tuple[Finding, ...]
    replayed: Replayed | None = None

    @property
    def ok(self) -> bool:
        return not self.findings


def of(found: Record, copies: Copies | None = None) -> Report:
    """The proof for a record and, where storage was looked at, its checkpoints."""
    return Report(
        steps=found.next_step,
        reigns=tuple(_reigns(found.commits)),
        undone=len(found.undone),
        trajectories=_states(found),
        replayable_from=_replayable_from(found),
        final=found.commits[-1].digests if found.commits else {},
        copies=copies,
        findings=rules.findings(found) + (copies.findings if copies else ()),
    )


def _reigns(commits: tuple[Commit, ...]) -> Iterator[Reign]:
    for epoch, group in groupby(commits, key=lambda commit: commit.epoch):
        steps = [commit.step for commit in group]
        yield Reign(epoch, steps[0], steps[-1])


def _states(found: Record) -> dict[str, int]:
    counts = Counter(dict.fromkeys(STATES, 0))
    for states in found.samples.values():
        counts.update(states)
    return dict(counts)


def _replayable_from(found: Record) -> int | None:
    first = found.next_step
    while first and (batch := found.batches.get(first - 1)) and batch.content:
        first -= 1
    return first if first < found.next_step else None


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs; `ok` and `findings` first of all."""
    fields = asdict(report)
    if report.copies:
        fields["copies"] = {
            "good": list(map(str, report.copies.good)),
            "unknown": list(map(str, report.copies.unknown)),
        }
    return {"ok": report.ok, **fields, "findings": [asdict(finding) for finding in report.findings]}


def as_text(report: Report) -> str:
    """The report as a table."""
    rows = [("history", _history(report)), ("trajectories", _counted(report)), ("checkpoints", _copies(report))]
    if report.replayable_from is not None:
        rows.append(("replay", f"the batches of steps {report.replayable_from} to {report.steps - 1} are kept"))
    if report.replayed is not None:
        last = report.replayed.first + report.replayed.steps - 1
        rows.append(("replayed", f"steps {report.replayed.first} to {last} gave the same states, bit for bit"))
    if report.ok:
        rows.append(("result", "each trajectory was trained on exactly once, or is still to be"))
    else:
        rows.append(("result", f"{len(report.findings)} findings"))
    rows += [(f"  {finding.kind}", finding.what) for finding in report.findings]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def _history(report: Report) -> str:
    chain = ", ".join(f"epoch {reign.epoch}: {reign.first}-{reign.last}" for reign in report.reigns)
    undone = f"; {report.undone} undone and trained again" if report.undone else ""
    return f"{report.steps} steps" + (f" ({chain})" if chain else "") + undone


def _counted(report: Report) -> str:
    return ", ".join(f"{count} {state}" for state, count in report.trajectories.items() if count) or "none"


def _copies(report: Report) -> str:
    if report.copies is None:
        return "not looked at"
    good = ", ".join(map(str, report.copies.good)) or "none"
    unknown = f"; never committed: {', '.join(map(str, report.copies.unknown))}" if report.copies.unknown else ""
    return f"on storage and as committed: {good}{unknown}"


def read(path: Path) -> dict[str, Any]:
    """A ledger's report for programs, and the curve of its committed steps.

    Raises:
        BadLedger: it cannot be read.
    """
    with record.opened(path) as db:
        return {"audit": as_json(of(record.of(db))), "curve": curve(db)}
