"""What people read: role counts, conditions, the columns of `kubectl get`."""

from __future__ import annotations

from robustrl_api.names import LABEL_JOB, LABEL_ROLE, Role
from robustrl_api.spec import ServiceRole
from robustrl_api.status import ConditionType, Incident, RoleStatus
from robustrl_operator.analyze.pod_status import cannot_start
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules.conditions import condition
from robustrl_operator.plan.rules.populate import service_of
from robustrl_operator.plan.standby import promotable, standbys
from robustrl_operator.view import PodView

UNSCHEDULABLE = "Unschedulable"
"""The scheduler's reason of condition PodScheduled."""


def apply(draft: Draft) -> Draft:
    draft = draft.set(
        observed_generation=draft.view.generation,
        step=draft.view.committed_step(),
        roles=_roles(draft),
        rollout_replicas=len(draft.live(Role.ROLLOUT)),
        rollout_selector=f"{LABEL_JOB}={draft.view.name},{LABEL_ROLE}={Role.ROLLOUT}",
    )
    return _conditions(draft)


def _roles(draft: Draft) -> tuple[RoleStatus, ...]:
    return (
        _role(draft, Role.TRAINER, draft.spec.trainer.replicas),
        _role(draft, Role.ROLLOUT, draft.spec.rollout.replicas),
        _role(draft, Role.MANAGER, draft.spec.manager.replicas),
        *(_with_starts(draft, _service(draft, service)) for service in draft.spec.services),
    )


def _role(draft: Draft, role: Role, desired: int) -> RoleStatus:
    ready = draft.healthy(role)
    if role is Role.TRAINER:
        ready = [pod for pod in ready if draft.is_member(pod.uid)]
    standby = len(_ready_standbys(draft)) if role is Role.ROLLOUT else 0
    # Incidents are bounded, so the count is carried on by what this plan adds.
    known = {_fault(incident) for incident in draft.view.status.incidents}
    added = [each for each in draft.status.incidents if each.role == role and _fault(each) not in known]
    restarts = draft.role_status(role.value).restarts + len(added)
    counted = RoleStatus(name=role, desired=desired, ready=len(ready), standby=standby, restarts=restarts)
    return _with_starts(draft, counted)


def _service(draft: Draft, service: ServiceRole) -> RoleStatus:
    return RoleStatus(name=service.name, desired=service.replicas, ready=_count(draft, service.name))


def _with_starts(draft: Draft, role: RoleStatus) -> RoleStatus:
    """With what is known of pods that failed as they started, until the role is complete."""
    if role.ready >= role.desired:
        return role
    before = draft.role_status(role.name)
    return role.model_copy(
        update={
            "failed_starts": before.failed_starts,
            "failed_start": before.failed_start,
            "next_start_time": before.next_start_time,
        }
    )


def _fault(incident: Incident) -> tuple[str, ...]:
    """What of an incident stays as it is while its recovery goes on."""
    return incident.role, incident.pod, incident.cause, incident.evidence, incident.detected_time


def _ready_standbys(draft: Draft) -> list[PodView]:
    """Rollouts that could take a trainer's place this moment, with a warm worker."""
    ready = standbys(draft.view)
    return [pod for pod in promotable(draft) if pod.uid in ready]


def _count(draft: Draft, service: str) -> int:
    pods = [pod for pod in draft.live(Role.SERVICE) if service_of(draft, pod) == service]
    return sum(1 for pod in pods if pod.phase == "Running")


def _conditions(draft: Draft) -> Draft:
    status = draft.status
    ready = {role.name: role.ready >= role.desired for role in status.roles}
    running = not draft.ended and not draft.spec.suspend
    full = running and all(ready.values())
    missing = ", ".join(f"{r.name} {r.ready}/{r.desired}" for r in status.roles if not ready[r.name])
    why = (_cannot_start(draft) or _failed_starts(draft)) if missing else ""
    missing = "; ".join(filter(None, (missing, why or (missing and _finds_no_node(draft)))))
    draft = condition(draft, ConditionType.READY, full, "AllRolesReady" if full else "RolesMissing", missing)
    training = running and ready["trainer"] and status.recovery is None and status.epoch > 0
    reason = "Training" if training else "NotTraining"
    draft = condition(draft, ConditionType.PROGRESSING, training, reason, draft.waiting_for)
    reason = "PodsCannotStart" if why else "RolesMissing"
    draft = _degraded(draft, reason, missing if running and status.epoch > 0 and not full else "")
    draft = _recovering(draft)
    for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED):
        if not any(c.type == kind and c.status == "True" for c in draft.status.conditions):
            draft = condition(draft, kind, False if draft.ended else None, "Ended" if draft.ended else "Running")
    return draft


def _cannot_start(draft: Draft) -> str:
    """Why pods that are missing do not come: the first reason will do, others are mostly the same."""
    return next((why for pod in draft.view.pods if not pod.deleting and (why := cannot_start(pod))), "")


def _finds_no_node(draft: Draft) -> str:
    """Why pods that are missing are nowhere yet, which may change by itself: no room, or a claim that is not there."""
    waiting = (pod for pod in draft.view.pods if not pod.deleting and pod.waiting == UNSCHEDULABLE)
    return next((f"no node for {pod.name}: {pod.message}" for pod in waiting), "")


def _failed_starts(draft: Draft) -> str:
    """Which role's pods are refused or fail as they start, again and again."""
    again = (role for role in draft.status.roles if role.next_start_time)
    return "; ".join(f"{r.name} failed to start {r.failed_starts} times: {r.failed_start}" for r in again)


def _degraded(draft: Draft, why: str, missing: str) -> Draft:
    """What the job does without for now. Each protects it less than it wants to be protected."""
    unstored = "" if draft.ended else _unstored(draft)
    reason = why if missing else "CheckpointsNotStored" if unstored else "AsDesired"
    return condition(draft, ConditionType.DEGRADED, bool(missing or unstored), reason, missing or unstored)


def _unstored(draft: Draft) -> str:
    """Why a trainer's checkpoints do not reach storage: they are in memory only."""
    reports = ((m.pod, draft.view.report(m.uid)) for m in draft.status.members if m.uid)
    return next((f"{pod}: {report.unstored}" for pod, report in reports if report and report.unstored), "")


def _recovering(draft: Draft) -> Draft:
    recovery = draft.status.recovery
    if recovery is None:
        return condition(draft, ConditionType.RECOVERING, False, "NoFault")
    message = f"{recovery.stage}: {recovery.evidence}"
    return condition(draft, ConditionType.RECOVERING, True, recovery.cause or "Fault", message)
