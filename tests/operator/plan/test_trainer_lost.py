"""Rule 3: a lost trainer's seat goes to the best rollout to spare, in the same status that raises the epoch."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.build import NOW, SECOND, draft, failed, job, running_job, saying, with_pod, with_status

from robustrl_api.status import RecoveryStatus, RLJobStatus, Scope
from robustrl_operator.analyze import Cause, Health, Verdict
from robustrl_operator.plan.rules import trainer_lost
from robustrl_operator.view import JobView

LOST = failed("Node", "NodeLost")
STARTING = Verdict(Health.STARTING)
COLD = failed(cause="AgentRestarted")
SUSPECT = Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST)


def seats(view: JobView, verdicts: dict[str, Verdict]) -> list[str]:
    return [member.pod for member in trainer_lost.apply(draft(view, verdicts)).status.members]


@pytest.mark.parametrize(
    ("patch", "verdicts", "wanted"),
    [
        pytest.param({}, {}, ["j-trainer-1", "j-trainer-2"], id="nobody lost"),
        pytest.param({}, {"j-trainer-1": LOST}, ["j-rollout-3", "j-trainer-2"], id="longest-lived rollout, same rank"),
        pytest.param({}, {"j-trainer-1": LOST, "j-trainer-2": LOST}, ["j-rollout-3", "j-rollout-4"], id="two lost"),
        pytest.param({}, {"j-trainer-2": LOST, "j-rollout-3": STARTING}, ["j-trainer-1", "j-rollout-4"],
                     id="one that starts is no standby"),
        pytest.param({}, {"j-trainer-2": LOST, "j-rollout-3": SUSPECT}, ["j-trainer-1", "j-rollout-4"],
                     id="nor one that is suspect"),
        pytest.param({}, {"j-trainer-2": LOST, "j-rollout-3": LOST, "j-rollout-4": LOST}, ["j-trainer-1", ""],
                     id="never below minReplicas"),
        pytest.param({"rollout": {"minReplicas": 3}}, {"j-trainer-1": LOST, "j-trainer-2": LOST},
                     ["j-rollout-3", ""], id="one to spare for two"),
        pytest.param({"rollout": {"minReplicas": 4}}, {"j-trainer-1": LOST}, ["", "j-trainer-2"], id="none to spare"),
        pytest.param({"mode": "Sync", "maxStaleness": 0}, {"j-trainer-1": LOST}, ["", "j-trainer-2"], id="Sync"),
        pytest.param({"recovery": {"standby": {"mode": "Off"}}}, {"j-trainer-1": LOST}, ["", "j-trainer-2"], id="Off"),
        pytest.param({}, {"j-trainer-1": failed()}, ["j-trainer-1", "j-trainer-2"], id="process only: rule 2"),
        pytest.param({}, {"j-trainer-1": COLD}, ["j-rollout-3", "j-trainer-2"], id="its agent was restarted"),
        pytest.param({}, {"j-trainer-1": COLD, "j-trainer-2": LOST}, ["j-rollout-3", "j-rollout-4"], id="and one lost"),
        pytest.param({"rollout": {"minReplicas": 3}}, {"j-trainer-1": COLD, "j-trainer-2": LOST},
                     ["j-trainer-1", "j-rollout-3"], id="one to spare: for the lost one"),
        pytest.param({"recovery": {"standby": {"reserve": 0}}}, {"j-trainer-1": COLD}, ["j-trainer-1", "j-trainer-2"],
                     id="none that is loaded: no faster than in place"),
        pytest.param({"recovery": {"strategy": "WholeJob"}}, {"j-trainer-1": LOST}, ["j-trainer-1", "j-trainer-2"],
                     id="WholeJob has its own rule"),
    ],
)  # fmt: skip
def test_who_takes_the_seat(patch: dict[str, Any], verdicts: dict[str, Verdict], wanted: list[str]) -> None:
    assert seats(running_job(job(**patch)), verdicts) == wanted


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"recovery": RecoveryStatus(cause="c", scope=Scope.POD, detected_time="t")}, id="a second time"),
        pytest.param({"base_step": 5}, id="in the first step"),
    ],
)
def test_an_agent_that_may_die_of_the_script_costs_no_other_pod(status: dict[str, Any]) -> None:
    view = with_status(running_job(), **status)
    assert seats(view, {"j-trainer-1": COLD}) == ["j-trainer-1", "j-trainer-2"]


def test_a_seat_that_is_given_up_is_a_fault_of_the_pod() -> None:
    """It is no sign that the script is at fault, and no reason to wait before the next restart."""
    after = trainer_lost.apply(draft(running_job(), {"j-trainer-1": COLD}))
    recovery = after.status.recovery
    assert recovery
    assert (recovery.scope, recovery.process_faults, after.status.unstable_restarts) == ("Pod", 0, 0)


def test_of_those_that_stand_by_an_admitted_one_is_promoted_first() -> None:
    view = saying(running_job(), "j-rollout-3", admitted=False)
    assert seats(view, {"j-trainer-1": LOST})[0] == "j-rollout-4"


def test_one_that_stands_by_is_promoted_before_one_whose_engine_is_admitted() -> None:
    """Its worker is loaded, and a trainer needs no engine. Engines are without current weights after each step."""
    view = running_job()
    for name in ("j-rollout-3", "j-rollout-4"):
        view = saying(view, name, admitted=False)
    assert seats(view, {"j-trainer-1": LOST})[0] == "j-rollout-3"


def test_a_rollout_without_address_is_not_promoted() -> None:
    view = with_pod(running_job(), "j-rollout-3", address="")
    assert seats(view, {"j-trainer-1": LOST})[0] == "j-rollout-4"


def test_one_fault_one_epoch() -> None:
    after = trainer_lost.apply(draft(running_job(), {"j-trainer-1": LOST, "j-trainer-2": LOST}))
    assert after.status.epoch == 2
    assert len(after.status.incidents) == 1


def test_recovery_says_what_was_seen_and_decided() -> None:
    after = trainer_lost.apply(draft(running_job(), {"j-trainer-1": failed("Node", "NodeLost", "node n1 is lost")}))
    recovery = after.status.recovery
    assert recovery
    assert (recovery.pod, recovery.cause, recovery.scope) == ("j-trainer-1", "NodeLost", "Node")
    assert (recovery.evidence, recovery.stage, recovery.step) == ("node n1 is lost", "Restarting", 5)
    assert recovery.replacement == "j-rollout-3"
    assert [event.reason for event in after.events] == ["FaultDetected", "RolloutPromoted"]


def test_each_promotion_names_the_trainer_whose_place_is_taken() -> None:
    after = trainer_lost.apply(
        draft(running_job(job(rollout={"minReplicas": 1})), {"j-trainer-1": LOST, "j-trainer-2": LOST})
    )
    assert [event.message for event in after.events if event.reason == "RolloutPromoted"] == [
        "j-rollout-3 becomes a trainer in place of j-trainer-1",
        "j-rollout-4 becomes a trainer in place of j-trainer-2",
    ]


def test_vacant_seat_waits_for_a_pod() -> None:
    after = trainer_lost.apply(draft(running_job(job(rollout={"minReplicas": 4})), {"j-trainer-1": LOST}))
    assert after.status.recovery
    assert after.status.recovery.stage == "WaitingForPod"


def test_before_the_first_epoch_a_seat_is_only_vacated() -> None:
    after = trainer_lost.apply(draft(with_status(running_job(), epoch=0), {"j-trainer-1": LOST}))
    assert after.status.epoch == 0
    assert after.status.recovery is None
    assert after.status.restarts_without_progress == 0


def test_outage_is_counted_from_its_first_fault() -> None:
    view = running_job()
    first = trainer_lost.apply(draft(view, {"j-trainer-1": LOST})).status
    later = running_job(status=first, now=NOW + 4 * SECOND)
    again = trainer_lost.apply(draft(later, {"j-trainer-2": LOST})).status
    assert again.epoch == 3
    assert first.recovery
    assert again.recovery
    assert again.recovery.detected_time == first.recovery.detected_time


def test_a_whole_rack_of_trainers_fits_into_the_status() -> None:
    """The API server refuses a status with a text that is too long, for as long as it is asked to store it."""
    view = running_job(job(trainer={"replicas": 40}, rollout={"replicas": 60, "minReplicas": 2}))
    after = trainer_lost.apply(draft(view, {f"j-trainer-{n}": LOST for n in range(1, 41)}))
    assert all(member.uid for member in after.status.members)
    RLJobStatus.model_validate(after.status.model_dump())
    (incident,) = after.status.incidents
    assert "and 2" in incident.decision
    assert incident.decision.endswith("more (rule 3)")
