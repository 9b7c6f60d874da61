"""Evidence that a pod will be gone soon and works until then: deletion with grace, SIGTERM, a node that is taken away.

What is announced can be answered before it happens (rule 7): nothing is retrained, nothing generated twice. A pod
that does not manage within its grace period is lost like any other.
"""

from __future__ import annotations

from datetime import timedelta

from robustrl_api.control import LEAVE_MARGIN_SECONDS
from robustrl_api.names import Role
from robustrl_api.spec import Strategy
from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Cause, Health, Verdict
from robustrl_operator.view import JobView, PodView

MARGIN = timedelta(seconds=LEAVE_MARGIN_SECONDS)


def judge(view: JobView, pod: PodView) -> Verdict | None:
    """LEAVING for a pod that is announced to go and still works; None for every other."""
    why = _announced(view, pod)
    if not why or view.spec.recovery.strategy is Strategy.WHOLE_JOB:
        return None
    # A deleted pod of another role leaves by itself; its replacement need not wait for it.
    if pod.deleting and pod.uid not in view.member_by_uid:
        return None
    return Verdict(Health.LEAVING, Cause.POD_LEAVING, why, Scope.POD) if _works(view, pod) else None


def shall_hand_over(view: JobView) -> bool:
    """Whether the trainers shall end at their next commit, because one of them leaves."""
    members = (view.by_uid.get(uid) for uid in view.member_by_uid)
    return any(pod is not None and judge(view, pod) is not None for pod in members)


def _announced(view: JobView, pod: PodView) -> str:
    node, report = view.nodes.get(pod.node), view.report(pod.uid)
    if pod.deleting:
        return f"pod {pod.name} is being deleted"
    if pod.role is not Role.SERVICE and (pod.called_back or (node is not None and node.leaving)):
        return f"node {pod.node} of {pod.name} is about to be taken away"
    if report is not None and report.leaving:
        return f"{pod.name} was told to end"
    return ""


def _works(view: JobView, pod: PodView) -> bool:
    """Whether it may still hand over: heard of lately, on a node that is there, with time left."""
    heard = view.reports.get(pod.uid)
    if heard is None or pod.phase != "Running" or view.node_lost(pod.node):
        return False
    in_time = pod.ends_at is None or view.now < pod.ends_at - MARGIN
    return in_time and view.now - heard.at < view.silence_limit and heard.report.complaint is None
