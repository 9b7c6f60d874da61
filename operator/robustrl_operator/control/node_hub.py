"""What node agents have last said of the jobs' pods: in memory, rebuilt by their next reports after a restart.

A node agent speaks only for pods that are on its own node: which those are it is told from the pods that the
reconcilers see, and what it says of any other is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from robustrl_api.node import (
    ACTIVE_PERMILLE,
    REPORT_INTERVAL_SECONDS,
    NodeAssignment,
    NodeReport,
    PodReading,
    WatchedPod,
    XidSeverity,
)
from robustrl_operator.view import Observed

log = logging.getLogger(__name__)

PRESENT = timedelta(seconds=6 * REPORT_INTERVAL_SECONDS)
"""A node agent that has been silent for longer is not there any more."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod that shall be looked at, and where it is."""

    uid: str
    namespace: str
    name: str
    node: str
    active_permille: int = ACTIVE_PERMILLE
    as_if: str = ""
    """What shall be said of it on purpose."""


@dataclass(frozen=True, slots=True)
class NodeHeard:
    """When a node's agent last reported, and what kept it from seeing."""

    at: datetime
    problem: str


class NodeHub:
    """Holds each pod's last reading.

    `on_news` is called with a pod of which something was said that a rule could act on at once: a new XID.
    """

    def __init__(self, clock: Callable[[], datetime], on_news: Callable[[Placed], None]) -> None:
        self._clock, self._on_news = clock, on_news
        self._jobs: dict[str, Mapping[str, Placed]] = {}
        self._placed: dict[str, Placed] = {}
        self._by_node: dict[str, dict[str, Placed]] = {}
        self._observed: dict[str, Observed] = {}
        self._nodes: dict[str, NodeHeard] = {}

    def watch(self, job: str, pods: Mapping[str, Placed]) -> None:
        """The job's pods by UID, as they are now. A pod that is not among them any more is forgotten."""
        before = self._jobs.get(job, {})
        if pods == before:
            return
        for uid in before:
            self._leave(uid)
        for uid, placed in pods.items():
            self._placed[uid] = placed
            self._by_node.setdefault(placed.node, {})[uid] = placed
        for uid in before.keys() - pods.keys():
            self._observed.pop(uid, None)
        self._jobs[job] = dict(pods)
        if not pods:
            del self._jobs[job]

    def _leave(self, uid: str) -> None:
        placed = self._placed.pop(uid)
        there = self._by_node[placed.node]
        del there[uid]
        if not there:
            del self._by_node[placed.node]

    def observed(self, uid: str) -> Observed | None:
        """What was last said of a pod."""
        return self._observed.get(uid)

    def take(self, report: NodeReport) -> NodeAssignment:
        """Take a node's report; the answer names the pods that it shall look at."""
        self._hear(report)
        here = self._by_node.get(report.node, {})
        for reading in report.pods:
            if reading.uid in here:
                self._note(here[reading.uid], reading)
            elif reading.uid in self._placed:
                log.warning("node %s spoke for pod %s, which is on another node", report.node, reading.uid)
        return NodeAssignment(interval_seconds=REPORT_INTERVAL_SECONDS, pods=tuple(map(_watched, here.values())))

    def problems(self) -> dict[str, str]:
        """Of the nodes whose agents report: what keeps them from seeing, empty where nothing does."""
        now = self._clock()
        self._nodes = {node: heard for node, heard in self._nodes.items() if now - heard.at <= PRESENT}
        return {node: heard.problem for node, heard in self._nodes.items()}

    def _hear(self, report: NodeReport) -> None:
        before = self._nodes.get(report.node)
        if report.problem and not (before and before.problem):
            log.warning("node %s: nothing is known of its GPUs: %s", report.node, report.problem)
        elif before and before.problem and not report.problem:
            log.info("node %s: its GPUs are seen again", report.node)
        self._nodes[report.node] = NodeHeard(self._clock(), report.problem)

    def _note(self, pod: Placed, reading: PodReading) -> None:
        before = self._observed.get(pod.uid)
        self._observed[pod.uid] = Observed(reading, self._clock())
        if _broken(reading) - (_broken(before.reading) if before else frozenset()):
            self._on_news(pod)


def _watched(pod: Placed) -> WatchedPod:
    return WatchedPod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        active_permille=pod.active_permille,
        as_if=pod.as_if,
    )


def _broken(reading: PodReading) -> frozenset[tuple[str, int]]:
    return frozenset((xid.gpu, xid.code) for xid in reading.xids if xid.severity is XidSeverity.GPU)
