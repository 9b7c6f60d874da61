"""Rule summary: counts and conditions as people read them."""

from __future__ import annotations

import pytest
from tests.operator.build import (
    NOW,
    SECOND,
    SERVICE,
    draft,
    failed,
    job,
    pod,
    running_job,
    saying,
    with_pod,
    with_status,
)

from robustrl_api.status import ConditionType, RecoveryStatus, RLJobStatus
from robustrl_operator.analyze import Cause, Verdict
from robustrl_operator.analyze.verdict import Health
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules import rollout_failed, summary

STARTUP = running_job(status=RLJobStatus(), reports={})


def said(of: Draft) -> dict[str, str]:
    return {c.type: c.status.value for c in of.status.conditions}


def test_all_well() -> None:
    after = summary.apply(draft(running_job()))
    assert {r.name: (r.desired, r.ready, r.standby) for r in after.status.roles} == {
        "trainer": (2, 2, 0), "rollout": (4, 4, 2), "manager": (1, 1, 0),
    }  # fmt: skip
    assert said(after) == {
        "Ready": "True", "Progressing": "True", "Degraded": "False", "Recovering": "False",
        "Succeeded": "Unknown", "Failed": "Unknown",
    }  # fmt: skip
    assert after.status.rollout_replicas == 4
    assert after.status.rollout_selector == "robustrl.dev/job=j,robustrl.dev/role=rollout"


@pytest.mark.parametrize(
    ("of", "ready", "progressing", "degraded", "recovering"),
    [
        pytest.param(draft(STARTUP), "False", "False", "False", "False", id="starting is not degraded"),
        pytest.param(draft(running_job(), {"j-rollout-3": failed("Pod")}), "False", "True", "True", "False",
                     id="a rollout is missing"),
        pytest.param(draft(with_status(running_job(), recovery=RecoveryStatus(cause="NodeLost"))), "True", "False",
                     "False", "True", id="recovering"),
        pytest.param(draft(running_job(job(suspend=True))), "False", "False", "False", "False", id="suspended"),
    ],
)  # fmt: skip
def test_conditions(of: Draft, ready: str, progressing: str, degraded: str, recovering: str) -> None:
    after = said(summary.apply(of))
    assert (after["Ready"], after["Progressing"], after["Degraded"], after["Recovering"]) == (
        ready, progressing, degraded, recovering,
    )  # fmt: skip


def test_what_is_missing_is_said() -> None:
    after = summary.apply(draft(running_job(), {"j-rollout-3": failed("Pod")}))
    (ready,) = [c for c in after.status.conditions if c.type == ConditionType.READY]
    assert ready.message == "rollout 3/4"


def test_why_a_missing_pod_does_not_come_is_said() -> None:
    view = with_pod(running_job(), "j-rollout-3", waiting="ImagePullBackOff", message="not found")
    after = summary.apply(draft(view, {"j-rollout-3": Verdict(Health.STARTING)}))
    (degraded,) = [c for c in after.status.conditions if c.type == ConditionType.DEGRADED]
    assert degraded.reason == "PodsCannotStart"
    assert degraded.message == ("rollout 3/4; image of j-rollout-3 cannot be pulled (ImagePullBackOff): not found")


@pytest.mark.parametrize(("name", "told"), [("j-trainer-1", True), ("j-rollout-3", False)])
def test_checkpoints_that_do_not_reach_storage_are_said(name: str, told: bool) -> None:
    """Of the trainers: only they write there."""
    after = summary.apply(draft(saying(running_job(), name, unstored="No space left on device")))
    (degraded,) = [c for c in after.status.conditions if c.type == ConditionType.DEGRADED]
    assert (degraded.status, degraded.reason) == (("True", "CheckpointsNotStored") if told else ("False", "AsDesired"))
    assert degraded.message == (f"{name}: No space left on device" if told else "")
    assert said(after)["Ready"] == "True"


def test_transition_times_move_only_with_the_status() -> None:
    first = summary.apply(draft(running_job())).status
    later = summary.apply(draft(running_job(status=first, now=NOW + SECOND))).status
    assert later == first
    verdicts: dict[str, Verdict] = {"j-rollout-3": failed("Pod")}
    broken = summary.apply(draft(running_job(status=first, now=NOW + SECOND), verdicts)).status
    moved = {c.type for c, old in zip(broken.conditions, first.conditions, strict=True)
             if c.last_transition_time != old.last_transition_time}  # fmt: skip
    assert moved == {"Ready", "Degraded"}


def test_what_keeps_a_missing_pod_from_being_scheduled_is_named() -> None:
    view = with_pod(running_job(), "j-rollout-3", waiting="Unschedulable", message="claim not found", phase="Pending")
    after = summary.apply(draft(view, {"j-rollout-3": Verdict(Health.STARTING)}))
    (degraded,) = [c for c in after.status.conditions if c.type == "Degraded"]
    assert (degraded.reason, degraded.message) == (
        "RolesMissing",
        "rollout 3/4; no node for j-rollout-3: claim not found",
    )


def test_services_that_begin_alike_are_counted_apart() -> None:
    view = running_job(job(services=[{**SERVICE, "replicas": 1}]))
    others = tuple(pod(name, view.pods[0].origin.SERVICE) for name in ("j-judge-1", "j-judge-fast-2"))
    after = summary.apply(draft(running_job(view.spec, pods=view.pods + others)))
    assert [(r.name, r.ready) for r in after.status.roles if r.name == "judge"] == [("judge", 1)]


def test_restarts_are_counted_on_when_the_list_of_incidents_is_full() -> None:
    """Then each new one pushes an old one of the same role out."""
    view = running_job()
    for number in range(13):
        exit_ = Verdict(Health.SUSPECT, Cause.ENGINE_EXITED, f"exit {number}")
        after = summary.apply(rollout_failed.apply(draft(view, {"j-rollout-3": exit_})))
        view = with_status(view, **dict(after.status))
    assert len(view.status.incidents) == 10
    assert {role.name: role.restarts for role in view.status.roles}["rollout"] == 13
