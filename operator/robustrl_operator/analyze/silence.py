"""Evidence from silence: an agent that has stopped reporting, a node that is not ready, a pod that never spoke.

Silence is measured from the last report or from when this operator began to listen, whichever is later, so that
a new operator starts with nobody under suspicion. But on the machine of the operator that led before and fell silent,
that one was the first to be missed: there the new one has been listening since the lease was renewed last, unless a
probe has reached the machine: then only the operator died. And nobody is given up before anybody else was heard, or
could have been for long enough: it may be the new operator that cannot be reached.

Where the pod's container has ended or started since, it is measured from there: the node lives and has the container
started again in place, and an agent needs a moment to report. So does one that has just begun: it brings up what moves
weights, during which its interpreter may stand still. An agent whose first report to this operator is not its first is
none of those.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from robustrl_api.names import Role
from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Cause, Health, Question, Verdict
from robustrl_operator.view import JobView, NodeView, PodView

PROBE_LEAD = timedelta(seconds=1)
"""The probe is asked this long before the verdict, so that its answer costs no time of its own."""
JUDGING = timedelta(milliseconds=100)
"""What it takes to judge and to write it down: who dies is given up before the last heartbeat of the limit is due."""

AGENT_START = timedelta(seconds=5)
"""What an agent may need from the start of its container to its first report, where the machine is busy."""
FIRST_SECONDS = timedelta(seconds=10)
"""What it may need from there until its reports come one after the other: UCX comes up, and an engine beside it."""
WAY_IS_OPEN = timedelta(seconds=60)
"""Agents that could not reach this operator all try again within seconds once they can."""
RESTART_PATIENCE = timedelta(seconds=10)
"""By so much at most does the restart of a container put off the limit: the node's clock may be wrong."""


def judge(view: JobView, pod: PodView) -> Verdict | None:
    """A verdict on a pod that has been silent for too long, or None while it has not."""
    last = last_heard(view, pod)
    if last is None:
        return _judge_unheard(view, pod)
    silent = view.now - last
    if silent < _limit(view) - PROBE_LEAD:
        return None
    return _judge_silent(view, pod, silent)


def _limit(view: JobView) -> timedelta:
    return view.silence_limit - JUDGING


def last_heard(view: JobView, pod: PodView) -> datetime | None:
    """Since when a pod has been silent; None where it never spoke.

    A member has been heard before it became one, if only by an earlier operator; and so has a pod whose agent was up
    before this one began to listen.
    """
    heard = view.reports.get(pod.uid)
    if heard is None:
        return _listening_since(view, pod) if pod.uid in view.member_by_uid or _was_up_before(view, pod) else None
    last = max(heard.at, _listening_since(view, pod))
    if pod.container_changed is None or pod.container_changed <= last:
        if heard.begun is None or _was_up_before(view, pod):
            return last
        return max(last, heard.begun + FIRST_SECONDS)
    return min(pod.container_changed + AGENT_START, last + RESTART_PATIENCE)


def _listening_since(view: JobView, pod: PodView) -> datetime:
    node = view.nodes.get(pod.node)
    if node is None or node.silent_since is None or _lives(view, node):
        return view.watching_since
    return node.silent_since


def _lives(view: JobView, node: NodeView) -> bool:
    """Whether a machine has been seen to live, be its pods as they may."""
    probes = (view.probes.get(pod.uid) for pod in view.pods if pod.node == node.name)
    return any(probe.reached for probe in probes if probe is not None)


def _was_up_before(view: JobView, pod: PodView) -> bool:
    if pod.phase != "Running" or pod.container_changed is None or pod.origin is Role.SERVICE:
        return False
    # By two clocks, the node's and the API server's: one of them may be wrong.
    return max(pod.container_changed, pod.created) + AGENT_START + FIRST_SECONDS < view.watching_since


def next_look(view: JobView) -> timedelta | None:
    """In how long a pod that says nothing until then is to be asked whether it lives, or given up; None if that is so
    of nobody."""
    marks = (_limit(view) - PROBE_LEAD, _limit(view))
    last = (view.watching_since, *(last_heard(view, pod) for pod in view.pods))
    left = (at + mark - view.now for at in last if at is not None for mark in marks)
    return min((each for each in left if each > timedelta()), default=None)


def has_missed_a_report(view: JobView, pod: PodView) -> bool:
    """Whether a pod that has spoken is silent for longer than from one report to the next."""
    at = last_heard(view, pod)
    return at is not None and view.now - at > 2 * view.heartbeat


def is_unexplained(view: JobView, pod: PodView) -> bool:
    """Whether a pod is silent, having missed a report, and it is not known yet whether it lives."""
    at, probe = last_heard(view, pod), view.probes.get(pod.uid)
    if at is None or not has_missed_a_report(view, pod):
        return False
    return probe is None or not probe.answered or probe.asked < at


def _judge_unheard(view: JobView, pod: PodView) -> Verdict:
    """Where the API server was away, nodes are not ready for a while after it is back, and an operator that has just
    begun to lead has heard of nobody."""
    if view.node_lost(pod.node) and view.now - view.watching_since > view.silence_limit + AGENT_START:
        text = f"node {pod.node} is lost and {pod.name} never reported from it"
        return Verdict(Health.FAILED, Cause.NODE_LOST, text, Scope.NODE)
    if pod.origin is Role.SERVICE and pod.phase == "Running":
        # No agent is in it: that it runs is all there is to hear.
        return Verdict(Health.HEALTHY)
    waited = view.now - max(pod.created, view.watching_since)
    limit = timedelta(seconds=view.spec.detection.startup_seconds)
    if waited > limit:
        why = f"({pod.waiting or pod.phase}) {pod.message}"
        text = f"{pod.name} did not report within {limit.total_seconds():.0f} s {why}"
        return Verdict(Health.FAILED, Cause.NEVER_STARTED, text.strip(), Scope.POD)
    return Verdict(Health.STARTING)


def _judge_silent(view: JobView, pod: PodView, silent: timedelta) -> Verdict:
    since = view.now - silent
    probe = view.probes.get(pod.uid)
    text = f"{pod.name} has been silent for {silent.total_seconds():.1f} s"
    if not pod.address:
        return _judge_without_address(view, pod, silent, text)
    if probe is None or probe.deep or probe.asked < since:
        return Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, text, ask=Question.LIVES)
    if not probe.done or silent < _limit(view) or not _can_be_reached(view):
        return Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, text)
    if probe.answered:
        # It lives but does not reach us. It is asked again, and has as long for it as a pod has to start.
        if silent > timedelta(seconds=view.spec.detection.startup_seconds) and _others_reach_us(view, pod):
            why = f"{text} though it answers probes, while others are heard"
            return Verdict(Health.FAILED, Cause.HEARTBEAT_LOST, why, Scope.POD, since=since)
        return Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, text + " but answers a probe", ask=Question.LIVES)
    if view.node_lost(pod.node):
        return Verdict(Health.FAILED, Cause.NODE_LOST, f"node {pod.node} is lost; {text}", Scope.NODE, since=since)
    return Verdict(Health.FAILED, Cause.HEARTBEAT_LOST, text + " and answers no probe", Scope.NODE, since=since)


def _can_be_reached(view: JobView) -> bool:
    """Whether any agent has found the way to this operator, or all had the time to."""
    if view.now - view.watching_since >= _limit(view):
        return True
    return any(heard.at >= view.watching_since for heard in view.reports.values())


def _judge_without_address(view: JobView, pod: PodView, silent: timedelta, text: str) -> Verdict:
    """A machine that has started again takes its pods' addresses away until it has made them anew, if it ever can.
    There is nobody to be probed meanwhile."""
    text += " and has no address to be probed at"
    since = view.now - silent
    if silent >= _limit(view) and _can_be_reached(view) and view.node_lost(pod.node):
        return Verdict(Health.FAILED, Cause.NODE_LOST, f"node {pod.node} is lost; {text}", Scope.NODE, since=since)
    if silent >= _limit(view) + RESTART_PATIENCE:
        return Verdict(Health.FAILED, Cause.HEARTBEAT_LOST, text, Scope.POD, since=since)
    return Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, text)


def _others_reach_us(view: JobView, pod: PodView) -> bool:
    """Whether the way to this operator has been open for a while, so that it is the pod that cannot go it."""
    others = [
        heard for uid, heard in view.reports.items() if uid != pod.uid and view.now - heard.at < view.silence_limit
    ]
    return any(each.steady_since is not None and view.now - each.steady_since >= WAY_IS_OPEN for each in others)
