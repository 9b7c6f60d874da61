"""Evidence from silence: an agent that has stopped reporting, a node that is not ready, a pod that never spoke.

Silence is measured from the last report or from when this operator began to listen, whichever is later, so that
a new operator starts with nobody under suspicion. Where the pod's container has ended or started since, it is measured
from there: the node lives and has the container started again in place, and an agent needs a moment to report.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from robustrl_api.names import Role
from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Cause, Health, Question, Verdict
from robustrl_operator.view import JobView, PodView

PROBE_LEAD = timedelta(seconds=1)
"""The probe is asked this long before the silence limit, so that its answer costs no time of its own."""


AGENT_START = timedelta(seconds=5)
"""What an agent may need from the start of its container to its first report, where the machine is busy."""
RESTART_PATIENCE = timedelta(seconds=10)
"""By so much at most does the restart of a container put off the limit: the node's clock may be wrong."""


def judge(view: JobView, pod: PodView) -> Verdict | None:
    """A verdict on a pod that has been silent for too long, or None while it has not."""
    last = last_heard(view, pod)
    if last is None:
        return _judge_unheard(view, pod)
    silent = view.now - last
    if silent < view.silence_limit - PROBE_LEAD:
        return None
    return _judge_silent(view, pod, silent)


def last_heard(view: JobView, pod: PodView) -> datetime | None:
    """Since when a pod has been silent; None where it never spoke.

    A member has been heard before it became one, if only by an earlier operator.
    """
    heard = view.reports.get(pod.uid)
    if heard is None:
        return view.watching_since if pod.uid in view.member_by_uid else None
    last = max(heard.at, view.watching_since)
    if pod.container_changed is None or pod.container_changed <= last:
        return last
    return min(pod.container_changed + AGENT_START, last + RESTART_PATIENCE)


def is_unexplained(view: JobView, pod: PodView) -> bool:
    """Whether a pod is silent, having missed a report, and it is not known yet whether it lives."""
    at, probe = last_heard(view, pod), view.probes.get(pod.uid)
    if at is None or view.now - at <= 2 * view.heartbeat:
        return False
    return probe is None or not probe.answered or probe.asked < at


def _judge_unheard(view: JobView, pod: PodView) -> Verdict:
    if view.node_lost(pod.node):
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
    if probe is None or probe.deep or probe.asked < since:
        return Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, text, ask=Question.LIVES)
    if not probe.done or silent < view.silence_limit:
        return Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, text)
    if probe.answered:
        # It lives but does not reach us. It is asked again; only a dead or fenced pod is replaced.
        return Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, text + " but answers a probe", ask=Question.LIVES)
    if view.node_lost(pod.node):
        return Verdict(Health.FAILED, Cause.NODE_LOST, f"node {pod.node} is lost; {text}", Scope.NODE, since=since)
    return Verdict(Health.FAILED, Cause.HEARTBEAT_LOST, text + " and answers no probe", Scope.NODE, since=since)
