"""Rule 1: a lost rollout is deleted and put on record; training is not touched."""

from __future__ import annotations

import pytest
from tests.operator.build import actions, draft, failed, running_job, with_status

from robustrl_operator.analyze import Cause, Health, Verdict
from robustrl_operator.plan import DeletePod
from robustrl_operator.plan.rules import rollout_failed


@pytest.mark.parametrize(("scope", "force"), [("Pod", False), ("Node", True)])
def test_the_pod_alone_goes(scope: str, force: bool) -> None:
    view = running_job()
    after = rollout_failed.apply(draft(view, {"j-rollout-4": failed(scope, "PodFailed")}))
    assert actions(after, DeletePod) == [DeletePod("j-rollout-4", "uid-j-rollout-4", force)]
    assert (after.status.epoch, after.status.members, after.status.recovery) == (1, view.status.members, None)
    (incident,) = after.status.incidents
    assert incident.role == "rollout"
    assert incident.recovered_time, "training never stopped"


def test_an_engine_that_exits_is_only_put_on_record() -> None:
    verdict = Verdict(Health.SUSPECT, Cause.ENGINE_EXITED, "engine exited")
    after = rollout_failed.apply(draft(running_job(), {"j-rollout-4": verdict}))
    assert after.actions == ()
    assert len(after.status.incidents) == 1
    again = rollout_failed.apply(draft(with_status(running_job(), incidents=after.status.incidents),
                                       {"j-rollout-4": verdict}))  # fmt: skip
    assert len(again.status.incidents) == 1, "two reports of one fault count once"


def test_evicted_then_deleted_is_one_fault() -> None:
    first = rollout_failed.apply(draft(running_job(), {"j-rollout-4": failed("Pod", "Evicted", "evicted")}))
    view = with_status(running_job(), incidents=first.status.incidents)
    again = rollout_failed.apply(draft(view, {"j-rollout-4": failed("Pod", "PodDeleted", "being deleted")}))
    assert len(again.status.incidents) == 1


def test_ten_incidents_are_kept() -> None:
    view = running_job()
    for number in range(12):
        verdict = failed("Process", "EngineExited", f"exit {number}")
        verdict = Verdict(Health.SUSPECT, verdict.cause, verdict.evidence)
        view = with_status(view, incidents=rollout_failed.apply(draft(view, {"j-rollout-4": verdict})).status.incidents)
    assert [i.evidence for i in view.status.incidents] == [f"exit {n}" for n in range(2, 12)]


def test_members_are_another_rules_business() -> None:
    assert not rollout_failed.apply(draft(running_job(), {"j-trainer-1": failed("Pod")})).actions
