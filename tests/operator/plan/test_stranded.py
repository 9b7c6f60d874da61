"""Rule stranded: a replacement without room may go to the node that it was kept off, once that is known to live."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operator.build import NOW, SECOND, actions, draft, names, running_job, with_pod, with_status

from robustrl_api.status import SuspectNode
from robustrl_operator.plan import CreatePod, DeletePod, plan
from robustrl_operator.plan.rules import stranded
from robustrl_operator.view import JobView, NodeView, timestamp

NAME = "j-rollout-6"


def waiting(nodes: dict[str, NodeView], seconds: float = 61, **fields: Any) -> JobView:
    """A replacement that waits for room, and was kept off node n9."""
    usual = {"waiting": "Unschedulable", "node": "", "kept_off": ("n9",), "created": NOW - seconds * SECOND}
    view = with_pod(running_job(), NAME, **{**usual, **fields})
    reports = {uid: heard for uid, heard in view.reports.items() if uid != f"uid-{NAME}"}
    return replace(view, reports=reports, nodes={**view.nodes, **nodes})


SPEAKS, SPOKE = ({"n9": NodeView("n9", heard=NOW - seconds * SECOND)} for seconds in (2, 4))
BACK, AWAY = {"n9": NodeView("n9")}, {"n9": NodeView("n9", ready=False)}


@pytest.mark.parametrize(
    ("view", "goes"),
    [
        pytest.param(waiting(BACK), True, id="the node is back"),
        pytest.param(waiting(AWAY), False, id="the node is not ready"),
        pytest.param(waiting({}), False, id="the node is no more"),
        pytest.param(waiting(BACK, seconds=59), False, id="the node's death may not be known yet"),
        pytest.param(waiting(SPEAKS, seconds=3), True, id="the node says that it is back"),
        pytest.param(waiting(SPOKE, seconds=3), False, id="the node spoke before its death"),
        pytest.param(waiting(BACK, waiting="ContainerCreating"), False, id="it has room"),
        pytest.param(waiting(BACK, kept_off=()), False, id="it was kept off nowhere"),
        pytest.param(waiting(BACK, deleting=True), False, id="it goes already"),
    ],
)
def test_who_is_made_anew(view: JobView, goes: bool) -> None:
    assert names(actions(stranded.apply(draft(view)), DeletePod)) == ([NAME] if goes else [])


def test_its_successor_may_go_there() -> None:
    made = plan(waiting(BACK), {})
    (create,) = [action for action in made.actions if isinstance(action, CreatePod)]
    assert create.avoid_nodes == ()


def sent(node: str, **fields: Any) -> JobView:
    """A replacement that was made before n9 was lost, and found room on this node since."""
    usual = {"waiting": "ContainerCreating", "kept_off": ("n8",), "node": node, "phase": "Pending"}
    view = waiting({}, seconds=5, **{**usual, **fields})
    lost = SuspectNode(name="n9", faults=1, last_time=timestamp(NOW - SECOND), lost_time=timestamp(NOW - SECOND))
    return with_status(view, suspects=(lost,))


@pytest.mark.parametrize(
    ("view", "goes"),
    [
        pytest.param(sent("n9"), True, id="to the machine that was lost"),
        pytest.param(sent("n7"), False, id="elsewhere"),
        pytest.param(sent("n9", deleting=True), False, id="it goes already"),
        pytest.param(sent("n9", phase="Running"), False, id="it runs, so the machine lives"),
        pytest.param(
            replace(sent("n9"), nodes={"n9": NodeView("n9", heard=NOW)}), False, id="the machine speaks again"
        ),
    ],
)
def test_one_that_was_sent_to_a_dead_machine_is_made_anew_elsewhere(view: JobView, goes: bool) -> None:
    deleted = actions(stranded.apply(draft(view)), DeletePod)
    assert [(each.name, each.force) for each in deleted] == ([(NAME, True)] if goes else [])
