"""Evidence from the agent in the pod: its child has exited, or it found something no restart can mend."""

from __future__ import annotations

from robustrl_api.control import UNKILLABLE, AgentReport, ChildState, Exit
from robustrl_api.names import Role
from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Cause, Health, Verdict
from robustrl_operator.view import JobView, PodView

LAST_WORDS = 700
"""Characters kept of what a process printed last: its exception stands at the end, and an Event holds a thousand."""


def judge(view: JobView, pod: PodView, report: AgentReport) -> Verdict | None:
    """A verdict from the last report, or None where the report has nothing bad to say."""
    if report.complaint is not None:
        text = f"{pod.name}: {report.complaint.reason}: {report.complaint.message}"
        cause = Cause.POD_FAILED if report.complaint.reason == UNKILLABLE else _blame(view, pod)
        return Verdict(Health.FAILED, cause, text, Scope.POD)
    if report.unstored and not _has_worked(view):
        # Later on memory protects the job, and a person has time to mend it.
        return Verdict(
            Health.FAILED, Cause.BAD_CONFIGURATION, f"{pod.name}: VolumeUnusable: {report.unstored}", Scope.POD
        )
    if pod.uid in view.member_by_uid:
        return _judge_trainer(view, pod, report)
    if view.current_role(pod) not in (Role.ROLLOUT, Role.MANAGER):
        # A trainer without a seat. What it says of its workers is of an epoch that is over.
        return None
    return _judge_supervised(view, pod, report)


def _blame(view: JobView, pod: PodView) -> Cause:
    """Who is at fault for a complaint. Once the job has worked it is the pod or its node, and others will do: a job
    that trains does not end because of one bad volume. What managers complain of is the job's own functions and ledger,
    of which there are no others."""
    whole = pod.origin is Role.MANAGER or not _has_worked(view)
    return Cause.BAD_CONFIGURATION if whole else Cause.POD_FAILED


def _judge_trainer(view: JobView, pod: PodView, report: AgentReport) -> Verdict | None:
    """A worker's exit counts only for the epoch it was started in: older ones have been answered already."""
    child = report.child
    if child.epoch != view.status.epoch:
        return None
    if child.state is not ChildState.EXITED or child.last_exit is None:
        return None
    if child.last_exit.code == 0:
        return Verdict(Health.FINISHED)
    if child.last_exit.handed_over:
        return Verdict(Health.HANDED_OVER)
    if child.last_exit.peer_lost:
        return Verdict(Health.SUSPECT, Cause.PEER_LOST, f"a worker of {pod.name} lost a peer", Scope.PROCESS)
    text = exit_text(pod.name, child.last_exit)
    if child.last_exit.agent_restarted:
        why = f" (its container ended: {pod.ended})" if pod.ended else ""
        return Verdict(Health.FAILED, Cause.AGENT_RESTARTED, text + why, Scope.PROCESS)
    return Verdict(Health.FAILED, Cause.WORKER_EXITED, text, Scope.PROCESS)


def _judge_supervised(view: JobView, pod: PodView, report: AgentReport) -> Verdict | None:
    """Engines and managers are restarted in place by their agent; the verdict says so until they are up again.

    The first restart is immediate, so an exit may be heard of only as a start with a last exit. One that keeps exiting,
    or hanging as it starts, before the job ever worked has a fault that no restart mends; later, it is the pod that is
    at fault.
    """
    child = report.child
    if child.state not in (ChildState.EXITED, ChildState.STARTING) or child.last_exit is None:
        return None
    budget = view.spec.recovery.budgets.restarts_without_progress
    in_vain = child.state is ChildState.EXITED and child.restarts >= budget
    if child.last_exit.requested and not in_vain:
        return Verdict(Health.STARTING)
    cause = _cause(pod, child.last_exit)
    text = exit_text(pod.name, child.last_exit)
    if not in_vain:
        return Verdict(Health.SUSPECT, cause, text, Scope.PROCESS)
    vain = f"{text} (restarted {child.restarts} times in vain)"
    return Verdict(Health.FAILED, cause if _has_worked(view) else Cause.BAD_CONFIGURATION, vain, Scope.POD)


def _cause(pod: PodView, exit: Exit) -> Cause:
    if pod.origin is Role.MANAGER:
        return Cause.MANAGER_HUNG if exit.requested else Cause.MANAGER_EXITED
    return Cause.ENGINE_HUNG if exit.requested else Cause.ENGINE_EXITED


def _has_worked(view: JobView) -> bool:
    """Whether what the user gave us has been seen to work: a step was made, or an engine was admitted."""
    return view.committed_step() > 0 or any(heard.report.admitted for heard in view.reports.values())


def exit_text(pod: str, exit: Exit) -> str:
    """An exit in words, with what the process said last."""
    how = f"killed by signal {-exit.code}" if exit.code < 0 else f"exited with status {exit.code}"
    how = "was ended because it hung" if exit.requested else how
    last = exit.message[-LAST_WORDS:]
    which = f"process {exit.life} of {pod}" if exit.life else f"process in {pod}"
    return f"{which} {how}" + (f": {last}" if last else "")
