"""Plays a row of the fault matrix on a job on the development cluster: strikes, times, and says what did not hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from robustrl.audit import report
from robustrl_api.names import Role
from robustrl_api.spec import Strategy
from robustrl_api.status import Condition, ConditionType, Incident, RLJobStatus, Truth
from robustrl_e2e.cluster_job import ClusterJob, read_ledger
from robustrl_e2e.hand import ClusterHand
from robustrl_e2e.leader import place_leader
from robustrl_e2e.managers import curve_of, ledger_of
from robustrl_e2e.surroundings import USUAL, Surroundings
from robustrl_e2e.waiting import until_at_work, until_moment, until_promoted
from robustrl_operator.faults.kind import KINDS
from robustrl_operator.faults.matrix import Moment, Row
from robustrl_operator.faults.strike import strike
from robustrl_operator.view import moment

SETTLE_STEPS = 3
DEADLINE_SECONDS = 300.0
POLL_SECONDS = 0.1
FOUND_SECONDS = 60.0
"""An agent that was killed is started again by its kubelet, who waits 10 s and more if it was not the first time."""


@dataclass(frozen=True)
class Outcome:
    """One row, played.

    Attributes:
        detection_seconds: from the fault to its verdict; None where none was due, or none came, or the fault takes
            effect some time later.
        step_seconds: from the fault, or from its verdict where it takes effect later, to the commit of the next
            optimizer step, of a later epoch where there was one; None where none was seen.
        complaints: what should have held and did not.
    """

    row: Row
    strategy: Strategy
    detection_seconds: float | None
    step_seconds: float | None
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """The job before or after a fault: which pods there are, in which run of its agent each is, and how many committed
    steps were trained again so far."""

    epoch: int
    undone: int
    uids: dict[str, str]
    boots: dict[str, str]


def settled(job: ClusterJob, standby_seconds: float = 0.0) -> None:
    """Wait until the job has all it wants, its standbys have had time to load, and it makes steps."""
    wanted = job.read().spec.rollout.replicas
    job.wait(
        lambda s: s.epoch > 0 and not s.recovering and sum(pod.admitted for pod in s.pods) >= wanted,
        "all roles",
        DEADLINE_SECONDS,
    )
    time.sleep(standby_seconds)
    job.until_step(job.step() + SETTLE_STEPS, DEADLINE_SECONDS)


def play(job: ClusterJob, row: Row, surroundings: Surroundings = USUAL) -> Outcome:
    """Strike a job that is settled; return when it is settled again.

    Raises:
        TimeoutError: it is not, in time. What was broken is mended nevertheless.
    """
    if row.moment is Moment.FIRST_STEP:
        until_at_work(job, epoch=1)
    place_leader(job, row)
    hand, before, strategy = ClusterHand(job, surroundings), _picture(job), job.read().spec.recovery.strategy
    by_role = strategy is Strategy.ROLE_BASED
    try:
        struck_pods = _strike(job, hand, row)
        struck = hand.struck(row.kind)
        if not by_role and row.seconds:
            # All pods begin again, which may need what was taken away.
            time.sleep(max(0.0, struck + row.seconds - time.time()))
            hand.mend()
        rises = row.epochs if by_role else min(row.incidents, 1)
        # Training may not notice, and the job looks settled until the fault is found.
        _until_found(job, struck, row.incidents if by_role else min(row.incidents, 1))
        stepped = _next_step(job, _standing_since(job, row, struck), before.epoch + rises)
        time.sleep(max(0.0, struck + row.seconds - time.time()))
        # Where the whole job starts again, what was taken away is back already.
        unsaid = tuple(_unsaid(job, row)) if by_role else ()
    finally:
        hand.mend()
    settled(job)
    found = _found(job, struck)
    complaints = (*unsaid, *_still_said(job, row))
    if by_role:
        complaints += tuple(judge(row, before, _picture(job), struck_pods, found))
    complaints += tuple(f"audit: {finding}" for finding in report.of(ledger_of(job)).findings)
    return Outcome(row, strategy, *times_of(row, struck, found, stepped), complaints)


def play_to_the_end(job: ClusterJob, row: Row) -> Outcome:
    """Wait for the end of a job whose script is at fault itself.

    Raises:
        TimeoutError: it does not come.
    """
    status = job.until_ended(DEADLINE_SECONDS)
    complaints = [*judge_end(row, status), *(f"audit: {each}" for each in read_ledger(job)["audit"]["findings"])]
    return Outcome(row, job.read().spec.recovery.strategy, None, None, tuple(complaints))


def _strike(job: ClusterJob, hand: ClusterHand, row: Row) -> tuple[str, ...]:
    """As often as the row's moment asks for; the pods that were hit."""
    epoch, members = job.status.epoch, {member.uid for member in job.status.members}
    struck = asyncio.run(strike(hand, row.kind, until_moment(job, row)))
    if row.moment is Moment.PROMOTION:
        return struck + asyncio.run(strike(hand, row.kind, until_promoted(job, members)))
    if row.moment is Moment.SAME_STEP:
        until_at_work(job, epoch + 1)
        return struck + asyncio.run(strike(hand, row.kind, row.index))
    return struck


def times_of(row: Row, struck: float, found: list[Incident], stepped: float) -> tuple[float | None, float]:
    """Seconds to the verdict and to the next step, as `Outcome` has them."""
    if not found:
        return None, stepped - struck
    detected = moment(found[0].detected_time).timestamp()
    return (None, stepped - detected) if row.belated else (detected - struck, stepped - struck)


def _found(job: ClusterJob, struck: float) -> list[Incident]:
    return [each for each in job.status.incidents if moment(each.detected_time).timestamp() >= struck]


def _until_found(job: ClusterJob, struck: float, incidents: int) -> None:
    """Wait until so many faults are on record; if they are not in time, that is for the judgement to say."""
    deadline = time.monotonic() + FOUND_SECONDS
    # Where none is due the API server may be away, and is not asked.
    while incidents and len(_found(job, struck)) < incidents and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _picture(job: ClusterJob) -> Picture:
    """Every pod with what its agent said: an operator that is new has not heard of all of them yet."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        pods = [pod for pod in job.pods() if not pod["deleting"]]
        if pods and all(pod["report"] for pod in pods):
            boots = {pod["name"]: pod["report"]["boot"] for pod in pods}
            undone = len(ledger_of(job).undone)
            return Picture(job.status.epoch, undone, {pod["name"]: pod["uid"] for pod in pods}, boots)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the operator has not heard of every pod within {DEADLINE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def _standing_since(job: ClusterJob, row: Row, struck: float) -> float:
    """From when on a step says that the job goes on. Managers whose machine is about to die may take one yet."""
    found = _found(job, struck) if KINDS[row.kind].role is Role.MANAGER else []
    return moment(found[0].detected_time).timestamp() if found else struck


def _next_step(job: ClusterJob, struck: float, epoch: int) -> float:
    """When the first step was committed after a moment and in this epoch or a later one."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for step in curve_of(job):
            if step["epoch"] >= epoch and step["time"] > struck:
                return float(step["time"])
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no step within {DEADLINE_SECONDS:.0f} s")


def _degraded(job: ClusterJob) -> Condition:
    return next(c for c in job.status.conditions if c.type == ConditionType.DEGRADED)


def _unsaid(job: ClusterJob, row: Row) -> Iterator[str]:
    """What the job should say while the fault lasts, and does not."""
    degraded = _degraded(job)
    if row.degraded and degraded.reason != row.degraded:
        yield f"Degraded is {degraded.status} meanwhile, {degraded.reason}: {degraded.message}"


def _still_said(job: ClusterJob, row: Row) -> Iterator[str]:
    """What the job goes on saying of a fault that is over."""
    deadline = time.monotonic() + FOUND_SECONDS
    while row.degraded and (degraded := _degraded(job)).reason == row.degraded:
        if time.monotonic() > deadline:
            yield f"Degraded is still {degraded.status}, {degraded.reason}: {degraded.message}"
            return
        time.sleep(POLL_SECONDS)


def judge(row: Row, before: Picture, after: Picture, struck: tuple[str, ...], found: list[Incident]) -> Iterator[str]:
    """What should have held and did not."""
    if after.epoch != before.epoch + row.epochs:
        yield f"epoch rose by {after.epoch - before.epoch}, not {row.epochs}"
    again = after.undone - before.undone
    if not row.undone <= again <= row.undone + row.may_undo:
        yield f"{again} steps were trained again, not {row.undone}"
    yield from _judge_pods(row, before, after, struck)
    yield from _judge_incidents(row, found)


def _judge_pods(row: Row, before: Picture, after: Picture, struck: tuple[str, ...]) -> Iterator[str]:
    for name, uid in before.uids.items():
        mine = row.whole_job or name in struck
        if (after.uids.get(name) == uid) is not (row.keeps_pod or not mine):
            yield f"{name} {'is gone' if name not in after.uids else 'is still there'}"
        stays = not mine or (row.keeps_pod and row.keeps_agent)
        if stays and after.boots.get(name) != before.boots.get(name):
            yield f"the agent of {name} restarted"


def _judge_incidents(row: Row, found: Sequence[Incident]) -> Iterator[str]:
    causes = [incident.cause for incident in found]
    if len(found) != row.incidents or not set(causes) <= set(row.causes):
        yield f"{len(found)} incidents ({', '.join(causes)}), not {row.incidents}"
    if row.rule and not any(f"rule {row.rule}" in incident.decision for incident in found):
        yield f"not answered by rule {row.rule}"


def judge_end(row: Row, status: RLJobStatus) -> Iterator[str]:
    """What should hold of a job that rightly failed, and does not."""
    failed = next((c for c in status.conditions if c.type == ConditionType.FAILED and c.status == Truth.TRUE), None)
    if failed is None or failed.reason != row.fails:
        yield f"it ended as {failed}, not as Failed for {row.fails}"
    if status.epoch != 1 + row.epochs:
        yield f"epoch rose by {status.epoch - 1}, not {row.epochs}"
    yield from _judge_incidents(row, status.incidents)
