"""Follows a fault made on purpose: prints each stage as it is reached."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from robustrl_api.status import Incident, InjectionStage, InjectionStatus, RLJobStatus, has_ended, struck_pods
from robustrl_operator.faults.kind import is_no_fault
from robustrl_operator.report.incidents import stage_seconds

POLL_SECONDS = 0.3
AGAIN_SECONDS = 2.0
"""Between two tries to read a status that cannot be read."""
QUIET_SECONDS = 30.0
"""What is not taken for a fault within this time after it struck, is not taken for one: a pod that only gets slow, or
that failed together with another."""
NOT_TAKEN_UP = "not taken up: no operator is at work on the job, or somebody else has asked for a fault in this moment"


class NotNow(Exception):
    """The status cannot be read at this moment; the text says why."""


def follow(read: Callable[[], RLJobStatus], request: str, timeout_seconds: float) -> bool:
    """Print what becomes of a request until the job is over it; whether it is.

    Args:
        read: gives the job's status. Where it raises `NotNow`, it is asked again.
    """
    deadline = time.monotonic() + timeout_seconds
    told = _Told(request)
    while time.monotonic() < deadline:
        try:
            status = read()
        except NotNow as error:
            told.say(f"the job's status cannot be read now, it is asked for again: {error}", file=sys.stderr)
            time.sleep(AGAIN_SECONDS * random.uniform(0.5, 1.0))
            continue
        end = told.take(status, time.monotonic())
        if end is not None:
            print(end[1], flush=True)
            return end[0]
        time.sleep(POLL_SECONDS)
    print(told.unfinished(timeout_seconds), flush=True)
    return False


class _Told:
    """What has been said of a request."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._said: set[str] = set()
        self._mine: InjectionStatus | None = None
        self._changed: float | None = None

    def take(self, status: RLJobStatus, now: float) -> tuple[bool, str] | None:
        """Say what is new; the conclusion, once there is one."""
        if status.injection is not None and status.injection.id == self._request:
            self._mine = status.injection
        # The next request takes the place of one that has struck, and the job may not be over that yet.
        status = status.model_copy(update={"injection": self._mine})
        fresh = [self.say(line) for line in lines(status, self._request)]
        if self._changed is None or any(fresh):
            self._changed = now
        quiet = now - self._changed
        if self._mine is None and quiet > QUIET_SECONDS:
            self.say(NOT_TAKEN_UP)
        return conclusion(status, self._request, quiet)

    def say(self, line: str, file: TextIO | None = None) -> bool:
        """Print a line once; whether it is new."""
        is_new = line not in self._said
        if is_new:
            self._said.add(line)
            print(line, flush=True, file=file)
        return is_new

    def unfinished(self, seconds: float) -> str:
        """What to say when the patience is over."""
        if self._mine is None:
            return f"not taken up within {seconds:.0f} s"
        return f"not over it within {seconds:.0f} s: `robustrl incidents` has the rest"


def lines(status: RLJobStatus, request: str) -> Iterator[str]:
    """What there is to say by now; each line is said once."""
    injection = status.injection
    if injection is None or injection.id != request:
        return
    pods = ", ".join(struck_pods(injection))
    if injection.targets:
        yield f"accepted: strikes {pods}"
    if injection.struck_time:
        yield f"struck: {pods}"
    for incident in _made(status, request):
        yield from _told(incident)


def _made(status: RLJobStatus, request: str) -> list[Incident]:
    return [incident for incident in status.incidents if incident.injection == request]


def _told(incident: Incident) -> Iterator[str]:
    for stage, seconds in stage_seconds(incident).items():
        yield f"{incident.pod}: {stage} after {seconds:.2f} s" + (
            f": {incident.cause}: {incident.evidence}\n{incident.pod}: decision: {incident.decision}"
            if stage == "detected"
            else ""
        )


def conclusion(status: RLJobStatus, request: str, quiet_seconds: float) -> tuple[bool, str] | None:
    """Whether the job is over it, and in what words; None while that is open.

    Args:
        quiet_seconds: for how long there has been nothing new to tell.
    """
    injection = status.injection
    if injection is None or injection.id != request:
        return None
    if injection.stage in (InjectionStage.REFUSED, InjectionStage.FAILED):
        return False, f"{injection.stage.lower()}: {injection.message}"
    made = _made(status, request)
    struck, is_done = struck_pods(injection), injection.stage is InjectionStage.STRUCK
    if is_done and made and all(incident.reconnected_time for incident in made):
        lost = f"over it: lost: {'; '.join(sorted({incident.lost or 'nothing' for incident in made}))}"
        if len(made) >= len(struck):
            return True, lost
        if quiet_seconds > QUIET_SECONDS:
            return True, f"{lost}; {len(struck)} pods were struck, {len(made)} faults are on record"
    if has_ended(status):
        return False, "the job has ended"
    if is_done and not made and is_no_fault(injection) and quiet_seconds > QUIET_SECONDS:
        return True, "over it: nothing was taken for a fault"
    return None
