"""Waiting for the moment at which a row of the fault matrix strikes a job on the development cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from robustrl_api.control import ChildState
from robustrl_api.names import Role
from robustrl_e2e.cluster_job import ClusterJob
from robustrl_e2e.managers import progress_of
from robustrl_e2e.moments import POLL_SECONDS, is_told_by_managers, whom
from robustrl_operator.faults.kind import KINDS
from robustrl_operator.faults.matrix import Row

WAIT_SECONDS = 120.0
T = TypeVar("T")


def until_moment(job: ClusterJob, row: Row) -> int:
    """Wait for a row's moment; which of the role's pods is to be struck.

    Raises:
        TimeoutError: it does not come.
    """
    if not is_told_by_managers(row.moment):
        return row.index
    role = KINDS[row.kind].role
    assert role is not None
    playing = [pod["name"] for pod in job.playing(role)]
    return _until(lambda: whom(row, progress_of(job), playing), str(row.moment))


def until_at_work(job: ClusterJob, epoch: int) -> None:
    """Wait until every trainer of an epoch has restored and is about to make its step.

    Raises:
        TimeoutError: they are not, in time.
    """
    _until(lambda: True if _are_at_work(job, epoch) else None, f"all trainers of epoch {epoch} at work")


def until_promoted(job: ClusterJob, before: set[str]) -> int:
    """Wait until a pod that was no member has been given a trainer's place and has not made a step yet; its rank.

    Args:
        before: the UIDs of those that were members.

    Raises:
        TimeoutError: nobody is, in time.
    """
    return _until(lambda: _promoted(job, before), "a promotion")


def _are_at_work(job: ClusterJob, epoch: int) -> bool:
    members = {member.uid for member in job.status.members}
    children = [pod["report"]["child"] for pod in job.pods() if pod["uid"] in members and pod["report"]]
    up = [child for child in children if (child["epoch"], child["state"]) == (epoch, ChildState.RUNNING)]
    return len(up) == job.read().spec.trainer.replicas


def _promoted(job: ClusterJob, before: set[str]) -> int | None:
    trainers = {pod["uid"] for pod in job.pods() if pod["report"] and pod["report"]["role"] == Role.TRAINER}
    new = [member.rank for member in job.status.members if member.uid in trainers - before]
    return new[0] if new else None


def _until(look: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {WAIT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    return found
