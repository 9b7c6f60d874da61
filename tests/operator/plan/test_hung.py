"""A process that hangs is convicted once, by name, and the conviction goes when the process has gone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operator.build import draft, failed, job, running_job, saying, with_status, without_pod

from robustrl_api.control import Child, ChildState, Exit
from robustrl_api.status import Conviction
from robustrl_operator.plan.assign import assignments
from robustrl_operator.plan.rules import hung, manager_failed, rollout_failed
from robustrl_operator.view import JobView

ROLLOUT, UID = "j-rollout-4", "uid-j-rollout-4"
HUNG = {ROLLOUT: failed("Process", "EngineHung")}


def living(view: JobView, life: str, name: str = ROLLOUT) -> JobView:
    return saying(view, name, Child(state=ChildState.RUNNING, life=life))


def test_the_process_is_named_in_status_and_then_in_the_assignment() -> None:
    view = living(running_job(), "a.1")
    after = hung.apply(draft(view, HUNG))
    assert after.status.convictions == (Conviction(uid=UID, life="a.1"),)
    assert after.actions == (), "its agent does it"
    (incident,) = after.status.incidents
    assert (incident.pod, incident.cause, incident.role) == (ROLLOUT, "EngineHung", "rollout")
    told = assignments(with_status(view, convictions=after.status.convictions))
    assert told[UID].end_life == "a.1"
    assert {a.end_life for uid, a in told.items() if uid != UID} == {""}


def test_it_is_convicted_once() -> None:
    view = living(running_job(), "a.1")
    first = hung.apply(draft(view, HUNG))
    kept = {"convictions": first.status.convictions, "incidents": first.status.incidents}
    again = hung.apply(draft(with_status(view, **kept), HUNG))
    assert again.status.convictions == first.status.convictions
    assert again.events == ()


@pytest.mark.parametrize("life", ["a.2", "b.1"])
def test_another_process_is_innocent(life: str) -> None:
    view = with_status(living(running_job(), life), convictions=(Conviction(uid=UID, life="a.1"),))
    assert hung.apply(draft(view)).status.convictions == ()


def test_an_operator_that_has_heard_nothing_yet_lets_it_stand() -> None:
    """Killed between the status and the agent's next call, its successor has the process ended."""
    conviction = Conviction(uid=UID, life="a.1")
    view = replace(with_status(running_job(), convictions=(conviction,)), reports={})
    assert hung.apply(draft(view)).status.convictions == (conviction,)
    assert assignments(view)[UID].end_life == "a.1"


def test_no_more_are_convicted_at_once_than_status_has_room_for() -> None:
    view = living(running_job(), "a.1")
    others = tuple(Conviction(uid=f"u{n}", life="x") for n in range(hung.MAX_CONVICTIONS))
    full = draft(view, HUNG).set(convictions=others)
    assert hung._convict(full, view.by_uid[UID]).status.convictions == others


def test_a_pod_that_is_gone_takes_its_conviction_with_it() -> None:
    view = with_status(running_job(), convictions=(Conviction(uid=UID, life="a.1"),))
    gone = without_pod(view, ROLLOUT)
    gone.reports.pop(UID)
    assert hung.apply(draft(gone)).status.convictions == ()


def test_the_end_that_was_asked_for_is_no_second_fault() -> None:
    child = Child(state=ChildState.EXITED, life="a.1", last_exit=Exit(code=-9, life="a.1", requested=True))
    after = rollout_failed.apply(draft(saying(running_job(), ROLLOUT, child)))
    assert after.status.incidents == ()


def test_managers_are_ended_likewise() -> None:
    view = living(running_job(), "m.1", "j-manager-0")
    after = manager_failed.apply(hung.apply(draft(view, {"j-manager-0": failed("Process", "ManagerHung")})))
    assert [c.life for c in after.status.convictions] == ["m.1"]
    assert after.actions == ()


def test_trainers_are_another_rules_business() -> None:
    view = living(running_job(), "t.1", "j-trainer-1")
    after = hung.apply(draft(view, {"j-trainer-1": failed("Process", "WorkerHung")}))
    assert after.status.convictions == ()


def test_whole_job_has_a_rule_of_its_own() -> None:
    view = living(running_job(job(recovery={"strategy": "WholeJob"})), "a.1")
    assert hung.apply(draft(view, HUNG)).status.convictions == ()
