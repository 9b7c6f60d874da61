"""Incidents for the on-call: what failed, the evidence, what was decided, how long each stage took, what was lost."""

from __future__ import annotations

from collections.abc import Iterable

from robustrl_api.status import Incident
from robustrl_operator.view import moment

STAGES = (
    ("detected", "detected_time"),
    ("promoted", "promoted_time"),
    ("restored", "restored_time"),
    ("first step", "recovered_time"),
    ("reconnected", "reconnected_time"),
)
"""In the order in which they are reached; every time is told from the fault."""


def stage_seconds(incident: Incident) -> dict[str, float]:
    """Seconds from the fault to each stage that was reached."""
    begin = moment(incident.fault_time or incident.detected_time)
    reached = ((name, getattr(incident, field)) for name, field in STAGES)
    return {name: round((moment(time) - begin).total_seconds(), 3) for name, time in reached if time}


def record(job: str, incident: Incident) -> dict[str, object]:
    """One incident as JSON, with its stages in seconds."""
    return {"job": job, **incident.model_dump(mode="json", by_alias=True), "stageSeconds": stage_seconds(incident)}


def text(job: str, incidents: Iterable[Incident]) -> str:
    """All incidents of a job, a paragraph each, oldest first."""
    paragraphs = [_paragraph(job, number, incident) for number, incident in enumerate(incidents, 1)]
    return "\n\n".join(paragraphs) if paragraphs else f"{job}: no incidents on record"


def _paragraph(job: str, number: int, incident: Incident) -> str:
    times = "  ".join(f"{name} {seconds:.2f} s" for name, seconds in stage_seconds(incident).items())
    lines = [
        f"{job} #{number}  {incident.detected_time}  {incident.cause}  ({incident.role} {incident.pod})",
        f"  evidence  {incident.evidence}{_purpose(incident)}",
        f"  decision  {incident.decision}; scope {incident.scope}, step {incident.step}, epoch {incident.epoch}",
        f"  times     {times}",
        f"  lost      {incident.lost or 'nothing'}",
    ]
    if incident.replacement:
        lines.insert(3, f"  replaced  by {incident.replacement}")
    return "\n".join(lines)


def _purpose(incident: Incident) -> str:
    return f" (made on purpose: injection {incident.injection})" if incident.injection else ""
