"""Where agents' reports meet assignments: in memory, rebuilt by the agents' next calls after a restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from robustrl_api.control import AgentReport, Assignment
from robustrl_operator.control.node_hub import NodeHub, Placed
from robustrl_operator.view import Heard

Clock = Callable[[], datetime]
GAP_HEARTBEATS = 3
"""Reports that are further apart do not come one after the other."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """A pod as its credential proves it."""

    namespace: str
    pod: str
    uid: str
    account: str = ""
    """The service account that it runs under."""
    node: str = ""
    """The node that it is bound to, where the API server says it (Kubernetes 1.30 and newer)."""


@dataclass
class _Line:
    """One pod's side of the long-poll."""

    heard: Heard | None = None
    assignment: Assignment | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def heartbeat_seconds(self) -> float:
        return self.assignment.heartbeat_seconds if self.assignment else 1.0


class ControlHub:
    """Holds each pod's last report and current assignment.

    `on_report` is called for a report that may matter to a decision: the first of an agent, one with another child,
    epoch, role, complaint or step, or one that is told to end. Heartbeats that say nothing new wake nobody.
    """

    def __init__(self, clock: Clock, on_report: Callable[[PodIdentity], None]) -> None:
        self._clock = clock
        self._on_report = on_report
        self.nodes = NodeHub(clock, self._take_news)
        self._lines: dict[str, _Line] = {}
        self._turned_away: set[str] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it speaks for no operator any more."""
        return self._closed

    def heard(self, uid: str) -> Heard | None:
        line = self._lines.get(uid)
        return line.heard if line else None

    def assign(self, uid: str, assignment: Assignment) -> None:
        """Give a pod its assignment; a call of its that is being held is answered at once if this changes it."""
        line = self._lines.setdefault(uid, _Line())
        if line.assignment is None or line.assignment.etag != assignment.etag:
            line.assignment = assignment
            line.changed.set()

    def forget(self, uid: str) -> None:
        """Drop all state of a pod that is gone: nothing of it may speak for a successor."""
        line = self._lines.pop(uid, None)
        if line is not None:
            line.changed.set()

    async def exchange(self, identity: PodIdentity, report: AgentReport) -> Assignment | None:
        """Take a report; answer with the assignment when it differs from `report.applied`, or after a heartbeat.

        An older call of the same pod that is still being held is answered now, so that one pod holds one call. None
        means that the operator does not know this pod (yet).
        """
        if self._is_silent_to(identity.uid):
            return None
        line = self._lines.setdefault(identity.uid, _Line())
        self._take(identity, line, report)
        line.changed.set()
        if line.assignment is None or line.assignment.etag == report.applied:
            await self._hold(line)
        return None if self._is_silent_to(identity.uid) else line.assignment

    def _is_silent_to(self, uid: str) -> bool:
        return self._closed or uid in self._turned_away

    @contextlib.contextmanager
    def turned_away(self, job: str, uids: Collection[str]) -> Iterator[None]:
        """Nobody is here for the pods of a job, and what they and their nodes' agents said is forgotten."""
        self._turned_away |= {*uids}
        for uid in uids:
            self.forget(uid)
        self.nodes.watch(job, {})
        try:
            yield
        finally:
            self._turned_away -= {*uids}

    def close(self) -> None:
        """Tell nobody anything any more; calls that are being held are answered now, as of an unknown pod."""
        self._closed = True
        for line in self._lines.values():
            line.changed.set()

    def _take_news(self, pod: Placed) -> None:
        self._on_report(PodIdentity(pod.namespace, pod.name, pod.uid))

    def _take(self, identity: PodIdentity, line: _Line, report: AgentReport) -> None:
        before, now = line.heard, self._clock()
        fresh = before is None or before.report.boot != report.boot or before.report.child != report.child
        changed = now if fresh or before is None else before.changed
        gap = GAP_HEARTBEATS * timedelta(seconds=line.heartbeat_seconds)
        steady = before.steady_since if before is not None and now - before.at <= gap else now
        begun = before.begun if before is not None and before.report.boot == report.boot else now
        line.heard = Heard(report, now, changed, steady, begun)
        if before is None or _matters(before.report, report):
            self._on_report(identity)

    async def _hold(self, line: _Line) -> None:
        line.changed.clear()
        try:
            async with asyncio.timeout(line.heartbeat_seconds):
                await line.changed.wait()
        except TimeoutError:
            return


def _matters(before: AgentReport, after: AgentReport) -> bool:
    """Whether a report says something that a rule could act on."""

    def essence(report: AgentReport) -> tuple[object, ...]:
        return (report.boot, report.epoch, report.role, report.child, report.complaint, report.unstored, report.step,
                report.admitted, report.leaving, report.struck)  # fmt: skip

    return essence(before) != essence(after)
