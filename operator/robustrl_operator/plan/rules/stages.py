"""How far a recovery has come, written into its incident: promoted, restored, reconnected.

These are times of reports, so they are as exact as agents are quick to tell of a change: some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from robustrl_api.control import AgentReport, ChildState
from robustrl_api.names import Role
from robustrl_api.status import Incident, Stage
from robustrl_api.version import Version
from robustrl_operator.analyze.verdict import Health
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import timestamp


def apply(draft: Draft) -> Draft:
    if _all_members(draft, lambda report: report.role is Role.TRAINER and report.epoch == draft.status.epoch):
        draft = _mark(draft, "promoted_time", _of_trainers(draft))
    if _all_members(draft, lambda report: _at_work(draft, report)):
        draft = _mark(_training(draft), "restored_time", _of_trainers(draft))
    if _reconnected(draft):
        draft = _mark(draft, "reconnected_time", lambda incident: bool(incident.recovered_time))
    return draft


def _of_trainers(draft: Draft) -> Callable[[Incident], bool]:
    return lambda incident: incident.role == Role.TRAINER and incident.epoch == draft.status.epoch


def _at_work(draft: Draft, report: AgentReport) -> bool:
    return report.child.epoch == draft.status.epoch and report.child.state is ChildState.RUNNING


def _all_members(draft: Draft, holds: Callable[[AgentReport], bool]) -> bool:
    members = draft.status.members
    reports = [draft.view.report(member.uid) for member in members if member.uid]
    full = bool(members) and len(reports) == len(members)
    return full and all(report is not None and holds(report) for report in reports)


def _training(draft: Draft) -> Draft:
    recovery = draft.status.recovery
    if recovery is None or recovery.stage is not Stage.RESTARTING:
        return draft
    return draft.set(recovery=recovery.model_copy(update={"stage": Stage.TRAINING}))


def _reconnected(draft: Draft) -> bool:
    """Every role complete and at work, every engine with weights of the epoch's own."""
    spec, healthy = draft.spec, draft.healthy
    if draft.status.recovery is not None or len(healthy(Role.MANAGER)) < spec.manager.replicas:
        return False
    rollouts = healthy(Role.ROLLOUT)
    trainers = [m for m in draft.status.members if m.uid and draft.verdict(m.uid).health is Health.HEALTHY]
    complete = len(rollouts) >= spec.rollout.replicas and len(trainers) >= spec.trainer.replicas
    return complete and all(_current(draft, draft.view.report(pod.uid)) for pod in rollouts)


def _current(draft: Draft, report: AgentReport | None) -> bool:
    if report is None or not report.admitted:
        return False
    try:
        return Version.parse(report.version).epoch == draft.status.epoch
    except ValueError:
        return False  # none yet, or one that is told otherwise in another release


def _mark(draft: Draft, field: str, concerns: Callable[[Incident], bool]) -> Draft:
    """Set a time in the incidents that it concerns and that have none yet."""
    if all(getattr(incident, field) or not concerns(incident) for incident in draft.status.incidents):
        return draft
    now = timestamp(draft.view.now)
    incidents = tuple(
        incident.model_copy(update={field: now}) if concerns(incident) and not getattr(incident, field) else incident
        for incident in draft.status.incidents
    )
    return draft.set(incidents=incidents)
