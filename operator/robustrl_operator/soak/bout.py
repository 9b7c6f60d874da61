"""What must follow from the faults that strike between two moments at which the job is well.

After one fault exactly what its row of the matrix says must follow. A second one may strike before the job is over
the first. The rules then allow more: both are answered by one restart of the trainers or by one each, or, where the
second meets the same step again, by a restart of the whole job. What a restart may touch is the same: nothing that
was not struck, unless the whole job started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from robustrl_api.names import Role
from robustrl_api.status import Incident
from robustrl_operator.faults.matrix import Row

MOST_AT_ONCE = 2
"""Faults that the job is not over yet. With three in a row and no step the job may rightly give up."""


@dataclass(frozen=True, slots=True)
class Life:
    """A pod at a moment: what it plays, and which agent and which process are in it."""

    pod: str
    role: Role
    boot: str
    process: str


@dataclass(frozen=True, slots=True)
class Scene:
    """The job when it is well; lives by UID of the pod."""

    epoch: int
    attempt: int
    step: int
    lives: Mapping[str, Life]


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that was made, and the pods that were hit, by UID."""

    row: Row
    hit: frozenset[str]


def incidents_at_least(strikes: Sequence[Strike], *, whole_job: bool) -> int:
    """How many incidents there must be before the job can be over these faults.

    Faults of trainers that strike together may be one incident. What the whole job's restart swept away need not be
    on record.
    """
    trainers = max(min(strike.row.epochs, strike.row.incidents) for strike in strikes)
    if whole_job:
        return trainers
    return trainers + sum(strike.row.incidents - min(strike.row.epochs, strike.row.incidents) for strike in strikes)


def judge(before: Scene, after: Scene, strikes: Sequence[Strike], incidents: Sequence[Incident]) -> tuple[str, ...]:
    """Every promise that was broken, in words."""
    whole_job = after.attempt > before.attempt
    findings = [*_restarts(before, after, strikes), *_records(strikes, incidents, whole_job=whole_job)]
    if not whole_job:
        findings += _others_disturbed(before, after, strikes)
    if len(strikes) == 1:
        findings += _single(before, after, strikes[0], incidents)
    return tuple(findings)


def _restarts(before: Scene, after: Scene, strikes: Sequence[Strike]) -> Iterator[str]:
    least, most = max(strike.row.epochs for strike in strikes), sum(strike.row.epochs for strike in strikes)
    rose = after.epoch - before.epoch
    if not least <= rose <= most:
        yield f"the epoch rose by {rose}, expected {least}" + (f" to {most}" if most > least else "")
    jobs, most_jobs = after.attempt - before.attempt, max(0, most - 1)
    if jobs > most_jobs:
        yield f"the whole job was restarted {jobs} times, expected at most {most_jobs}"
    if after.step <= before.step:
        yield f"no step was made after step {before.step}"


def _records(strikes: Sequence[Strike], incidents: Sequence[Incident], *, whole_job: bool) -> Iterator[str]:
    least = incidents_at_least(strikes, whole_job=whole_job)
    most = sum(strike.row.incidents for strike in strikes)
    if not least <= len(incidents) <= most:
        yield f"{len(incidents)} incidents on record, expected {least}" + (f" to {most}" if most > least else "")
    causes = {cause for strike in strikes for cause in strike.row.causes}
    for incident in incidents:
        if incident.cause not in causes:
            yield f"{taken_for(incident)}, expected {_listed(causes)}"


def _others_disturbed(before: Scene, after: Scene, strikes: Sequence[Strike]) -> Iterator[str]:
    """A pod that was not hit keeps its agent, and its process as long as it plays the same role; trainers' processes
    are all in the scope of a fault of one."""
    hit = frozenset().union(*(strike.hit for strike in strikes))
    for uid, life in before.lives.items():
        now = after.lives.get(uid)
        if uid in hit:
            continue
        if now is None:
            yield f"{life.pod} was not hit and is gone"
        elif now.boot != life.boot:
            yield f"{life.pod} was not hit and its agent was restarted"
        elif now.role is life.role is not Role.TRAINER and now.process != life.process:
            yield f"{life.pod} was not hit and its process was restarted"


def _single(before: Scene, after: Scene, strike: Strike, incidents: Sequence[Incident]) -> Iterator[str]:
    row = strike.row
    if row.rule and not any(f"rule {row.rule}" in incident.decision for incident in incidents):
        yield f"no incident was answered by rule {row.rule}: {_listed(i.decision for i in incidents)}"
    for uid in strike.hit & before.lives.keys():
        life, now = before.lives[uid], after.lives.get(uid)
        if (now is not None) is not row.keeps_pod:
            yield f"{life.pod} was hit and " + ("is gone" if row.keeps_pod else "is still there")
        elif now is not None and (now.boot == life.boot) is not row.keeps_agent:
            yield f"{life.pod} was hit and its agent " + ("was restarted" if row.keeps_agent else "lives on")


def taken_for(incident: Incident) -> str:
    """In words, with the beginning and the end of the evidence: a traceback's last line names the exception."""
    lines = incident.evidence.splitlines() or [""]
    words = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"
    return f"{incident.pod} was taken for {incident.cause} ({words})"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)) or "none"
