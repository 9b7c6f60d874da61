"""How far a recovery has come is written into its incident, each stage once."""

from __future__ import annotations

from tests.operator.build import NOW, SECOND, draft, running_job, saying, with_status

from robustrl_api.control import Child, ChildState
from robustrl_api.names import Role
from robustrl_api.status import Incident, RecoveryStatus, Scope, Stage
from robustrl_operator.plan.rules import stages
from robustrl_operator.view import JobView, timestamp

BEFORE, AT = timestamp(NOW - 9 * SECOND), timestamp(NOW)
INCIDENT = Incident(role="trainer", pod="p", cause="WorkerExited", decision="restart", scope=Scope.PROCESS, epoch=1,
                    step=5, detected_time=BEFORE)  # fmt: skip
ROLLOUTS = ("j-rollout-3", "j-rollout-4", "j-rollout-5", "j-rollout-6")


def recovering(state: ChildState, *, epoch: int = 1) -> JobView:
    view = with_status(running_job(), incidents=(INCIDENT,), recovery=RecoveryStatus(stage=Stage.RESTARTING, step=5))
    for name in ("j-trainer-1", "j-trainer-2"):
        view = saying(view, name, Child(state=state, epoch=epoch), epoch=epoch)
    return view


def times(view: JobView) -> tuple[str, str, str]:
    (incident,) = stages.apply(draft(view)).status.incidents
    return incident.promoted_time, incident.restored_time, incident.reconnected_time


def test_members_of_the_old_epoch_have_not_come_anywhere() -> None:
    assert times(recovering(ChildState.RUNNING, epoch=0)) == ("", "", "")


def test_promoted_when_all_have_taken_their_place() -> None:
    assert times(recovering(ChildState.STARTING)) == (AT, "", "")


def test_restored_when_all_are_at_work() -> None:
    view = recovering(ChildState.RUNNING)
    assert times(view) == (AT, AT, "")
    recovery = stages.apply(draft(view)).status.recovery
    assert recovery
    assert recovery.stage is Stage.TRAINING


def test_a_stage_is_marked_once() -> None:
    view = with_status(
        recovering(ChildState.RUNNING), incidents=(INCIDENT.model_copy(update={"promoted_time": BEFORE}),)
    )
    assert times(view) == (BEFORE, AT, "")


def reconnecting(version: str, count: int = 4) -> JobView:
    incident = INCIDENT.model_copy(update={"recovered_time": BEFORE})
    view = with_status(recovering(ChildState.RUNNING), recovery=None, incidents=(incident,))
    for name in ROLLOUTS:
        current = version if ROLLOUTS.index(name) < count else "0.5"
        view = saying(view, name, admitted=True, version=current, epoch=1)
    return view


def test_reconnected_when_every_engine_has_weights_of_the_epoch() -> None:
    assert times(reconnecting("1.6"))[2] == AT
    assert times(reconnecting("1.6", count=3))[2] == ""
    assert times(reconnecting("0.6"))[2] == ""
    assert times(reconnecting("of another release"))[2] == "", "and a plan is made all the same"


def test_another_roles_incident_has_no_trainers_stages() -> None:
    incident = INCIDENT.model_copy(update={"role": Role.ROLLOUT.value, "recovered_time": BEFORE})
    view = with_status(reconnecting("1.6"), incidents=(incident,))
    assert times(view) == ("", "", AT)
