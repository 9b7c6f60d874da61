"""The terms on which a job meets a storm, and what it must be at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from robustrl_api.job import RLJob
from robustrl_api.status import ConditionType, RLJobStatus, holds
from robustrl_operator.report.curve import mean_of_last

JOB_RESTARTS = 1000
"""Two faults in one step rightly restart the whole job; in a long storm that is no reason to give up."""
LOST_AFTER_MISSED = 15
"""A busy machine may need ten heartbeats to start an agent; it must not be taken for lost meanwhile."""
HANG_SECONDS, PROBE_SECONDS = 8, 2
"""Hangs are found sooner than users would want, so that a storm is not mostly waiting."""


def braced(job: RLJob, steps: int) -> RLJob:
    """The job with so many steps, found hanging soon, and not given up for the number of its restarts."""
    spec = job.spec
    found = spec.detection
    detection = found.model_copy(
        update={
            "lost_after_missed": LOST_AFTER_MISSED,
            "probe_seconds": PROBE_SECONDS,
            "trainer": found.trainer.model_copy(update={"idle_seconds": HANG_SECONDS}),
            "rollout": found.rollout.model_copy(update={"zero_throughput_seconds": HANG_SECONDS}),
            "manager": found.manager.model_copy(update={"unanswered_seconds": HANG_SECONDS}),
        }
    )
    budgets = spec.recovery.budgets.model_copy(update={"job_restarts": JOB_RESTARTS})
    recovery = spec.recovery.model_copy(update={"budgets": budgets})
    changed = spec.model_copy(update={"steps": steps, "detection": detection, "recovery": recovery})
    return job.model_copy(update={"spec": changed})


def broken_at_end(
    steps: int, status: RLJobStatus, ledger: Mapping[str, Any], goal: tuple[str, float] | None
) -> Iterator[str]:
    """What is not as it would be after a run without faults, in words.

    Args:
        ledger: what `robustrl.audit` read from it.
        goal: a metric, and what the mean of its last steps must reach.
    """
    if not holds(status, ConditionType.SUCCEEDED):
        yield "the job has not succeeded"
    audit, curve = ledger["audit"], ledger["curve"]
    for finding in audit["findings"]:
        yield f"audit: {finding['what']}"
    if [commit["step"] for commit in curve] != list(range(steps)):
        yield f"{len(curve)} steps are committed, expected {steps}"
    if goal is not None:
        name, least = goal
        reached = mean_of_last(curve, name)
        if not reached >= least:
            yield f"{name} reached {reached:.3f}, expected at least {least:.3f}"
