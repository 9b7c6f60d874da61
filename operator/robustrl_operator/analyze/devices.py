"""Evidence from outside the pod: what the agent of its node has seen of its GPUs, or of its processor time.

An XID that says that the GPU is broken is a fault, at once: its machine has to be left. One that the process brought
upon itself shows as the process's exit, and convicts nobody here.

That a pod's GPUs idle is evidence only in the trainers' phase Train, only of what was seen since the phase began and
since the process did, and only while the node's agent reports. It convicts nobody alone: see `inactivity`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from robustrl_api.node import REPORT_INTERVAL_SECONDS, Source, Xid, XidSeverity
from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Cause, Health, Verdict
from robustrl_operator.view import JobView, Observed, PodView

FRESH = timedelta(seconds=3 * REPORT_INTERVAL_SECONDS)
"""What a node agent said longer ago says nothing of now."""


@dataclass(frozen=True, slots=True)
class Still:
    """A pod that was seen to stand still."""

    since: datetime
    lasted: timedelta
    """As far as it was seen."""
    text: str
    spins: bool
    """Whether it may use the processor and stand still nevertheless, as a process does that waits for its GPU."""


def judge_fault(view: JobView, pod: PodView) -> Verdict | None:
    """FAILED for a pod on a broken GPU: the pod, and its node under suspicion."""
    observed = view.readings.get(pod.uid)
    if observed is None:
        return None
    broken = next((xid for xid in observed.reading.xids if xid.severity is XidSeverity.GPU), None)
    if broken is None:
        return None
    text = f"{pod.name}: XID {broken.code} ({broken.meaning}) of {broken.gpu} on node {pod.node}"
    return Verdict(Health.FAILED, Cause.GPU_FAILED, text, Scope.POD, since=_when(observed, broken))


def _when(observed: Observed, xid: Xid) -> datetime:
    return observed.at - timedelta(seconds=xid.age_seconds)


def standing_still(view: JobView, pod: PodView) -> Still | None:
    """What the node's agent has seen of a pod's idleness in its present phase, or None where that is nothing."""
    observed, heard = view.readings.get(pod.uid), view.reports[pod.uid]
    if observed is None or view.now - observed.at > FRESH:
        return None
    reading = observed.reading
    idle_since = observed.at - timedelta(seconds=reading.idle_seconds)
    since = max(idle_since, heard.phase_since, heard.changed)
    if reading.idle_seconds == 0 or since >= observed.at:
        return None
    lasted = observed.at - since
    text = f"{pod.name} on node {pod.node}: {reading.idle_text}, for {lasted.total_seconds():.0f} s"
    return Still(since, lasted, text, spins=reading.source is Source.GPU)
