"""The end of a run: a table of its incidents, the audit of its ledger, and the picture."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from robustrl.managers.audit import audit
from robustrl_api.job import RLJob
from robustrl_api.status import Incident, RLJobStatus
from robustrl_operator.report.picture import draw
from robustrl_operator.report.timeline import Timeline
from robustrl_operator.view import moment


def conclude(timeline: Timeline, job: RLJob, status: RLJobStatus, folder: Path) -> None:
    """Print the table and write timeline.json and timeline.png."""
    print()
    print(table(job, status))
    ledger = folder / "ledger.sqlite"
    if ledger.exists():
        print(ledger_line(ledger, job.spec.data.samples_per_prompt))
    for condition in status.conditions:
        if condition.type in ("Succeeded", "Failed") and condition.status == "True":
            print(f"{condition.type}: {condition.message}")
    timeline.write(folder / "timeline.json")
    picture = draw(timeline, job, folder / "timeline.png")
    print(f"files: {folder}" + (f", picture: {picture.name}" if picture else ""))


def table(job: RLJob, status: RLJobStatus) -> str:
    """Incidents, a line each."""
    if not status.incidents:
        return f"{job.metadata.name}: no faults, epoch {status.epoch}"
    rows: list[tuple[str, ...]] = [("pod", "fault", "scope", "step", "epoch", "next step after", "decision")]
    rows += [_row(incident) for incident in status.incidents]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(incident: Incident) -> tuple[str, ...]:
    if incident.role != "trainer":
        took = "training went on"
    elif incident.recovered_time:
        took = f"{(moment(incident.recovered_time) - moment(incident.detected_time)).total_seconds():.2f} s"
    else:
        took = "-"
    where = (incident.scope.value, str(incident.step), str(incident.epoch))
    return (incident.pod, incident.cause, *where, took, incident.decision)


def ledger_line(path: Path, samples_per_prompt: int) -> str:
    """What the ledger proves of every trajectory, in one line."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        found = audit(connection, samples_per_prompt)
    counts = ", ".join(f"{count} {state}" for state, count in found["trajectories"].items() if count)
    verdict = (
        "none lost, none trained twice" if found["ok"] else f"LOST {found['missing']}, TWICE {found['trained_twice']}"
    )
    return f"trajectories: {counts}; {verdict}"
