"""Weighs the evidence on every pod and gives one verdict each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from robustrl_api.control import AgentReport, ChildState
from robustrl_api.status import Scope
from robustrl_operator.analyze import child, devices, inactivity, leaving, pod_status, silence, together
from robustrl_operator.analyze.verdict import HEALTHY, Cause, Detector, Health, Verdict, Verdicts
from robustrl_operator.view import JobView, PodView


def analyze(view: JobView, detectors: Sequence[Detector] = ()) -> Verdicts:
    """One verdict for each pod, and for each member whose pod is gone.

    Args:
        detectors: the users' own, asked about pods that nothing else speaks against.
    """
    verdicts = {pod.uid: _judge(view, pod, detectors) for pod in view.pods}
    for member in view.status.members:
        if member.uid and member.uid not in verdicts:
            text = f"pod {member.pod} no longer exists"
            verdicts[member.uid] = Verdict(Health.FAILED, Cause.POD_DELETED, text, Scope.POD)
    return _settle_lost_peers(view, together.settle(view, verdicts))


def _judge(view: JobView, pod: PodView, detectors: Sequence[Detector]) -> Verdict:
    report = view.report(pod.uid)
    going = leaving.judge(view, pod)
    if going is not None and report is not None:
        return _judge_leaving(view, pod, report, going)
    bad = pod_status.judge(view, pod) or devices.judge_fault(view, pod) or silence.judge(view, pod)
    if bad is not None:
        return bad
    if report is None:
        return Verdict(Health.STARTING)
    found = _judge_process(view, pod, report)
    return found or next((v for detector in detectors if (v := detector(view, pod)) is not None), HEALTHY)


def _judge_leaving(view: JobView, pod: PodView, report: AgentReport, going: Verdict) -> Verdict:
    """Nobody waits for the good-bye of a pod whose process has failed or hangs, or whose workers have ended without
    one."""
    found = devices.judge_fault(view, pod) or _judge_process(view, pod, report)
    if found is None:
        return going
    if found.failed:
        return replace(found, scope=Scope.POD)
    ended = found.health is Health.FINISHED or found.cause is Cause.PEER_LOST
    return found if ended else replace(going, ask=found.ask)


def _judge_process(view: JobView, pod: PodView, report: AgentReport) -> Verdict | None:
    """Its exit, or that it stands still. One that has exited and is being started again may hang as it starts."""
    told = child.judge(view, pod, report)
    if told is None or (report.child.state is ChildState.STARTING and not told.failed):
        return inactivity.judge(view, pod, report) or told
    return told


def _settle_lost_peers(view: JobView, verdicts: Verdicts) -> Verdicts:
    """A worker that lost its peer accuses somebody else. If nobody else is found within the silence limit, or
    every member says the same, it is a fault of its own."""
    members = [member.uid for member in view.status.members if member.uid]
    accusers = [uid for uid in members if verdicts[uid].cause is Cause.PEER_LOST]
    if not accusers or any(verdicts[uid].failed for uid in members):
        return verdicts
    others_silent = any(verdicts[uid].cause is Cause.HEARTBEAT_LOST for uid in members)
    if others_silent or not (len(accusers) == len(members) or _waited(view, accusers)):
        return verdicts
    first = accusers[0]
    convicted = Verdict(Health.FAILED, Cause.PEER_LOST, verdicts[first].evidence, Scope.PROCESS)
    return verdicts | {first: convicted}


def _waited(view: JobView, accusers: list[str]) -> bool:
    """Whether everyone else has reported since the accusation, and so is known to live."""
    accused_at = min(view.reports[uid].changed for uid in accusers)
    others = [m.uid for m in view.status.members if m.uid and m.uid not in accusers]
    return all(uid in view.reports and view.reports[uid].at > accused_at + view.heartbeat for uid in others)
