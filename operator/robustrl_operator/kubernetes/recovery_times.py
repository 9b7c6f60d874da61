"""How long trainers' recoveries took, as a histogram. Prometheus takes one that shrinks for one that began anew, and
status holds the last ten incidents only: so each is counted once, when it is first seen to have ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client.core import HistogramMetricFamily, Metric

from robustrl_api.job import RLJob
from robustrl_api.status import Incident
from robustrl_operator.view import moment

BUCKETS = (0.5, 1, 2, 3, 6, 10, 30, 60, 120, 300, 600)


@dataclass
class _Job:
    counted: frozenset[tuple[str, str]] = frozenset()
    """Of the incidents that status held last."""
    counts: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    recoveries: int = 0
    seconds: float = 0.0

    def count(self, incidents: list[Incident]) -> None:
        for incident in incidents:
            if _identity(incident) not in self.counted:
                self._add((moment(incident.recovered_time) - moment(incident.detected_time)).total_seconds())
        self.counted = frozenset(map(_identity, incidents))

    def _add(self, seconds: float) -> None:
        self.recoveries += 1
        self.seconds += seconds
        for place, bound in enumerate(BUCKETS):
            self.counts[place] += seconds <= bound


def _identity(incident: Incident) -> tuple[str, str]:
    return incident.pod, incident.detected_time


class RecoveryTimes:
    """Seconds from a fault's detection to the next optimizer step, by job.

    Args:
        since: recoveries that ended before are another operator's to tell of.
    """

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._jobs: dict[tuple[str, str], _Job] = {}

    def collect(self, jobs: Iterable[RLJob]) -> Metric:
        """Count what is new. A job that is gone is forgotten."""
        family = HistogramMetricFamily(
            "robustrl_recovery_seconds", "Fault found to next optimizer step.", labels=("namespace", "job")
        )
        before, self._jobs = self._jobs, {}
        for job in jobs:
            labels = (job.metadata.namespace, job.metadata.name)
            known = self._jobs[labels] = before.get(labels) or _Job()
            known.count([each for each in job.status.incidents if self._has_ended(each)])
            buckets = [(str(float(bound)), float(count)) for bound, count in zip(BUCKETS, known.counts, strict=True)]
            family.add_metric(labels, [*buckets, ("+Inf", float(known.recoveries))], sum_value=known.seconds)
        return family

    def _has_ended(self, incident: Incident) -> bool:
        mine = incident.role == "trainer" and bool(incident.recovered_time)
        return mine and moment(incident.recovered_time) >= self._since
