"""Follows a fault made on purpose: prints each stage as it is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from robustrl_api.control import Harm
from robustrl_api.status import Incident, InjectionStage, InjectionStatus, RLJobStatus, has_ended
from robustrl_operator.report.incidents import stage_seconds
from robustrl_operator.view import moment

POLL_SECONDS = 0.3
QUIET_SECONDS = 30.0
"""A fault that only slows down is followed for so long after it struck: none should be found."""


def follow(read: Callable[[], RLJobStatus], request: str, timeout_seconds: float) -> bool:
    """Print what becomes of a request until the job is over it; whether it is."""
    deadline = time.monotonic() + timeout_seconds
    said: set[str] = set()
    while time.monotonic() < deadline:
        status = read()
        for line in lines(status, request):
            if line not in said:
                said.add(line)
                print(line, flush=True)
        end = conclusion(status, request, time.time())
        if end is not None:
            print(end[1], flush=True)
            return end[0]
        time.sleep(POLL_SECONDS)
    print(f"not over it within {timeout_seconds:.0f} s: `robustrl incidents` has the rest")
    return False


def lines(status: RLJobStatus, request: str) -> Iterator[str]:
    """What there is to say by now; each line is said once."""
    injection = status.injection
    if injection is None or injection.id != request:
        return
    pods = ", ".join(target.pod for target in injection.targets)
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


def conclusion(status: RLJobStatus, request: str, now: float) -> tuple[bool, str] | None:
    """Whether the job is over it, and in what words; None while that is open."""
    injection = status.injection
    if injection is None or injection.id != request:
        return None
    if injection.stage in (InjectionStage.REFUSED, InjectionStage.FAILED):
        return False, f"{injection.stage.lower()}: {injection.message}"
    made = _made(status, request)
    if made and all(incident.reconnected_time for incident in made):
        return True, f"over it: lost: {'; '.join(sorted({incident.lost or 'nothing' for incident in made}))}"
    if has_ended(status):
        return False, "the job has ended"
    if not made and _only_slows(injection) and now - moment(injection.struck_time).timestamp() > QUIET_SECONDS:
        return True, "over it: nothing was taken for a fault"
    return None


def _only_slows(injection: InjectionStatus) -> bool:
    return bool(injection.struck_time) and all(target.deed == Harm.SLOW for target in injection.targets)
