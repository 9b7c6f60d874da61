"""The end of a run: a table of its incidents, the audit of its ledger, and the picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from robustrl_api.job import RLJob
from robustrl_api.status import Incident, RLJobStatus, Scope
from robustrl_operator.report.curve import LAST_STEPS, mean_of_last
from robustrl_operator.report.picture import draw
from robustrl_operator.report.timeline import Timeline
from robustrl_operator.view import moment


def conclude(timeline: Timeline, job: RLJob, status: RLJobStatus, folder: Path, ledger: dict[str, Any] | None) -> None:
    """Print the table and write timeline.json and timeline.png.

    Args:
        ledger: what `robustrl.audit` found, if the job got so far as to have one.
    """
    print()
    print(table(job, status))
    if ledger is not None:
        print("\n".join(ledger_lines(ledger)))
    for condition in status.conditions:
        if condition.type in ("Succeeded", "Failed") and condition.status == "True":
            print(f"{condition.type}: {condition.message}")
    print(keep(timeline, job, folder))


def keep(timeline: Timeline, job: RLJob, folder: Path) -> str:
    """Write timeline.json and timeline.png; where they are, in words."""
    timeline.write(folder / "timeline.json")
    picture = draw(timeline, job, folder / "timeline.png")
    return f"files: {folder}" + (f", picture: {picture.name}" if picture else "")


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
    if incident.role != "trainer" and incident.scope is not Scope.JOB:
        took = "training went on"
    elif incident.recovered_time:
        took = f"{(moment(incident.recovered_time) - moment(incident.detected_time)).total_seconds():.2f} s"
    else:
        took = "-"
    where = (incident.scope.value, str(incident.step), str(incident.epoch))
    return (incident.pod, incident.cause, *where, took, incident.decision)


def ledger_lines(found: dict[str, Any]) -> list[str]:
    """What the ledger proves of every trajectory, and how well the model does at the end."""
    audit, curve = found["audit"], found["curve"]
    counts = ", ".join(f"{count} {state}" for state, count in audit["trajectories"].items() if count)
    proof = "none lost, none trained twice"
    if not audit["ok"]:
        proof = "BUT " + "; ".join(finding["what"] for finding in audit["findings"])
    lines = [f"trajectories: {counts}; {proof}"]
    exact = mean_of_last(curve, "exact")
    if not math.isnan(exact):
        lines.append(f"exact answers in the last {LAST_STEPS} steps: {100 * exact:.1f} %")
    return lines
