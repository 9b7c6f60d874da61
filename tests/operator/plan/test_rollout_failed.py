"""Rule 1: a lost rollout is deleted and put on record; training is not touched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operator.build import actions, draft, failed, job, names, running_job, with_status

from robustrl_operator.analyze import Cause, Health, Verdict
from robustrl_operator.plan import DeletePod
from robustrl_operator.plan.rules import rollout_failed
from robustrl_operator.view import NodeView


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


@pytest.mark.parametrize(
    ("replicas", "node_ready", "incidents", "forced"),
    [
        pytest.param(3, True, 0, [], id="scaled down"),
        pytest.param(3, False, 0, ["j-rollout-6"], id="scaled down, and its node dies meanwhile"),
        pytest.param(4, True, 1, [], id="deleted by somebody"),
    ],
)
def test_what_was_scaled_away_is_no_fault(replicas: int, node_ready: bool, incidents: int, forced: list[str]) -> None:
    """It would be counted against its node."""
    pods = running_job().pods
    view = replace(
        running_job(),
        spec=job(rollout={"replicas": replicas}),
        pods=tuple(replace(p, deleting=p.name == "j-rollout-6") for p in pods),
    )
    view = replace(view, nodes={p.node: NodeView(p.node, ready=node_ready or p.name != "j-rollout-6") for p in pods})
    after = rollout_failed.apply(draft(view))
    assert len(after.status.incidents) == len(after.status.suspects) == incidents
    assert names(actions(after, DeletePod)) == forced
