"""Plays a row of the fault matrix on a job on the development cluster: strikes, times, and says what did not hold."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustrl.audit import record, report
from robustrl_api.names import Role
from robustrl_api.spec import Strategy
from robustrl_api.status import ConditionType, Incident
from robustrl_e2e.cluster import proxy
from robustrl_e2e.cluster_job import ClusterJob
from robustrl_e2e.exporters import Exporters
from robustrl_e2e.hand import ClusterHand
from robustrl_operator.faults.matrix import Row
from robustrl_operator.faults.strike import strike
from robustrl_operator.view import moment

SETTLE_STEPS = 3
DEADLINE_SECONDS = 300.0
POLL_SECONDS = 0.1
ASK_SECONDS = 20.0
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
class _Picture:
    """The job before or after a fault: which pods there are, and in which run of its agent each is."""

    epoch: int
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


def play(job: ClusterJob, row: Row, exporters: Exporters | None = None) -> Outcome:
    """Strike a job that is settled; return when it is settled again.

    Args:
        exporters: what a row of shape `Watched` strikes.

    Raises:
        TimeoutError: it is not, in time. What was broken is mended nevertheless.
    """
    hand, before, strategy = ClusterHand(job, exporters), _picture(job), job.read().spec.recovery.strategy
    try:
        struck_pods = asyncio.run(strike(hand, row.kind, row.index))
        assert hand.struck is not None
        struck = hand.struck
        if strategy is Strategy.WHOLE_JOB and row.seconds:
            # All pods begin again, which may need what was taken away.
            time.sleep(max(0.0, struck + row.seconds - time.time()))
            hand.mend()
        rises = row.epochs > 0 or (strategy is Strategy.WHOLE_JOB and row.incidents > 0)
        stepped = _next_step(job, struck, before.epoch if rises else before.epoch - 1)
        time.sleep(max(0.0, struck + row.seconds - time.time()))
        unsaid = tuple(_unsaid(job, row))
    finally:
        hand.mend()
    # Training may not notice, and the job looks settled until the fault is found.
    _until_found(job, struck, row.incidents if strategy is Strategy.ROLE_BASED else min(row.incidents, 1))
    settled(job)
    found = _found(job, struck)
    complaints = (
        tuple(_judge(row, before, _picture(job), struck_pods, found)) if strategy is Strategy.ROLE_BASED else ()
    )
    complaints += unsaid
    complaints += tuple(f"audit: {finding}" for finding in audit(job).findings)
    return Outcome(row, strategy, *times_of(row, struck, found, stepped), complaints)


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
    while len(_found(job, struck)) < incidents and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _picture(job: ClusterJob) -> _Picture:
    """Every pod with what its agent said: an operator that is new has not heard of all of them yet."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        pods = [pod for pod in job.pods() if not pod["deleting"]]
        if pods and all(pod["report"] for pod in pods):
            boots = {pod["name"]: pod["report"]["boot"] for pod in pods}
            return _Picture(job.status.epoch, {pod["name"]: pod["uid"] for pod in pods}, boots)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the operator has not heard of every pod within {DEADLINE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def _next_step(job: ClusterJob, struck: float, epoch: int) -> float:
    """When the first step was committed after a moment and in a later epoch than the one given."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for step in curve(job):
            if step["epoch"] > epoch and step["time"] > struck:
                return float(step["time"])
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no step within {DEADLINE_SECONDS:.0f} s")


def _unsaid(job: ClusterJob, row: Row) -> Iterator[str]:
    """What the job should say while the fault lasts, and does not."""
    (degraded,) = [c for c in job.status.conditions if c.type == ConditionType.DEGRADED]
    if row.degraded and degraded.reason != row.degraded:
        yield f"Degraded is {degraded.status} meanwhile, {degraded.reason}: {degraded.message}"


def _judge(
    row: Row, before: _Picture, after: _Picture, struck: tuple[str, ...], found: list[Incident]
) -> Iterator[str]:
    """What should have held and did not."""
    if after.epoch != before.epoch + row.epochs:
        yield f"epoch rose by {after.epoch - before.epoch}, not {row.epochs}"
    for name, uid in before.uids.items():
        mine = name in struck
        if (after.uids.get(name) == uid) is not (row.keeps_pod or not mine):
            yield f"{name} {'is gone' if name not in after.uids else 'is still there'}"
        stays = not mine or (row.keeps_pod and row.keeps_agent)
        if stays and after.boots.get(name) != before.boots.get(name):
            yield f"the agent of {name} restarted"
    causes = [incident.cause for incident in found]
    if len(found) != row.incidents or not set(causes) <= set(row.causes):
        yield f"{len(found)} incidents ({', '.join(causes)}), not {row.incidents}"
    if row.rule and not any(f"rule {row.rule}" in incident.decision for incident in found):
        yield f"not answered by rule {row.rule}"


def curve(job: ClusterJob) -> list[dict[str, Any]]:
    """Committed steps, from the managers; empty while they are away."""
    try:
        return list(json.loads(_ask(job, "curve")))
    except (OSError, ValueError):
        return []


def audit(job: ClusterJob) -> report.Report:
    """The proof from the job's ledger as it is now.

    Raises:
        OSError: the managers do not hand it out.
    """
    with tempfile.TemporaryDirectory(prefix="robustrl-audit-") as folder:
        path = Path(folder) / "ledger.sqlite"
        path.write_bytes(_ask(job, "ledger"))
        return report.of(record.read(path))


def _ask(job: ClusterJob, what: str) -> bytes:
    """From the managers' own port: neither the operator nor the API server has to be there."""
    for manager in (pod for pod in job.pods() if pod["role"] == Role.MANAGER and not pod["deleting"]):
        with proxy.DIRECT.open(f"http://{manager['address']}:8300/v1/{what}", timeout=ASK_SECONDS) as response:
            return bytes(response.read())
    raise ConnectionError("there are no managers now")
