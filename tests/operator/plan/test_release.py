"""Rule release: a job that ended holds no pods."""

from __future__ import annotations

from dataclasses import replace

from tests.operator.build import actions, draft, failed, names, running_job, with_pod, with_status

from robustrl_api.status import ConditionType
from robustrl_operator.plan import DeletePod, plan
from robustrl_operator.plan.rules import release
from robustrl_operator.plan.rules.conditions import condition, succeed
from robustrl_operator.view import NodeView

ENDED = with_status(running_job(), conditions=succeed(draft(running_job()), "done").status.conditions)


def test_a_running_job_keeps_its_pods() -> None:
    assert release.apply(draft(running_job())).actions == ()


def test_every_pod_goes_and_those_of_lost_nodes_by_force() -> None:
    after = release.apply(draft(ENDED, {"j-rollout-3": failed("Node", "NodeLost")}))
    assert {a.name: a.force for a in actions(after, DeletePod)} == {p.name: p.name == "j-rollout-3" for p in ENDED.pods}


def test_no_rule_runs_for_a_job_that_ended() -> None:
    decided = plan(ENDED, {"uid-j-trainer-1": failed("Pod")})
    assert decided.status.epoch == 1
    assert decided.status.incidents == ()
    assert all(isinstance(action, DeletePod) for action in decided.actions)


def test_an_end_is_not_taken_back() -> None:
    status = plan(ENDED, {}).status
    assert next(c for c in status.conditions if c.type == ConditionType.SUCCEEDED).status == "True"
    assert condition(draft(ENDED), ConditionType.READY, False, "Ended").ended


def test_a_pod_that_goes_already_is_forced_once_its_node_is_dead() -> None:
    """Nobody is left there to finish its end."""
    view = with_pod(ENDED, "j-rollout-3", deleting=True)
    nodes = {pod.node: NodeView(pod.node, ready=pod.name != "j-rollout-3") for pod in view.pods}
    for each, forced in ((view, []), (replace(view, nodes=nodes), ["j-rollout-3"])):
        deleted = actions(release.apply(draft(each)), DeletePod)
        assert [action.name for action in deleted if action.force] == forced
        assert ("j-rollout-3" in names(deleted)) is bool(forced)
