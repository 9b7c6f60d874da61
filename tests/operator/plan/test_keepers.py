"""Who keeps copies of whose checkpoints, as tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.operator.build import job, pod, running_job, with_pod, with_status, without_pod

from robustrl_api.names import Role
from robustrl_api.status import Member
from robustrl_operator.plan.assign import assignments
from robustrl_operator.view import JobView, NodeView

ROLLOUTS = tuple(f"j-rollout-{number}" for number in range(3, 7))
TRAINERS = ("j-trainer-1", "j-trainer-2")
EQUAL = {"trainer": {"parallelism": {"data": 2}}}
SHARDED = {"trainer": {"parallelism": {"tensor": 2}}}


def keepers(view: JobView) -> dict[str, str]:
    """Who keeps for each trainer."""
    given = assignments(view)
    return {view.by_uid[uid].name: given[uid].keeper for uid in view.member_by_uid if uid in given}


def on_node(view: JobView, node: str, *names: str) -> JobView:
    for name in names:
        view = with_pod(view, name, node=node)
    return view


def test_one_copy_of_equal_states_is_kept_by_one_rollout() -> None:
    found = keepers(running_job(job(**EQUAL)))
    assert found["j-trainer-1"] == found["j-trainer-2"]
    assert found["j-trainer-1"] in ROLLOUTS


def test_only_trainers_have_a_keeper_and_it_is_among_their_peers() -> None:
    view = running_job(job(**EQUAL))
    given = assignments(view)
    for uid, each in given.items():
        assert bool(each.keeper) is (uid in view.member_by_uid)
        assert (each.keeper_peer is None) is (uid not in view.member_by_uid)


def test_shards_are_spread_over_the_rollouts() -> None:
    spec = job(trainer={"replicas": 64, "parallelism": {"tensor": 64}}, rollout={"replicas": 64})
    load = Counter(keepers(running_job(spec)).values())
    assert len(load) > 16, load
    assert not any("trainer" in name for name in load)


@pytest.mark.parametrize(
    ("gone", "same"),
    [("another", True), ("a new one", True), ("the keeper", False)],
)
def test_the_keeper_changes_only_when_it_goes(gone: str, same: bool) -> None:
    view = running_job(job(**EQUAL))
    before = keepers(view)["j-trainer-1"]
    if gone == "a new one":
        # Of all that could come, some take the place; most do not.
        changed = sum(
            keepers(replace(view, pods=(*view.pods, pod(f"j-rollout-{n}"))))["j-trainer-1"] != before
            for n in range(100, 200)
        )
        assert changed < 50
        return
    name = before if gone == "the keeper" else next(each for each in ROLLOUTS if each != before)
    assert (keepers(without_pod(view, name))["j-trainer-1"] == before) is same


@pytest.mark.parametrize(
    ("view", "keeper"),
    [
        pytest.param(without_pod(running_job(), *ROLLOUTS), "j-trainer-2", id="no rollout: the next trainer"),
        pytest.param(
            without_pod(running_job(), *ROLLOUTS, "j-trainer-2"), "", id="nobody else"
        ),
        pytest.param(
            on_node(without_pod(running_job(), *ROLLOUTS[1:]), "n1", ROLLOUTS[0]),
            "j-trainer-2",
            id="a trainer elsewhere before a rollout on the same node",
        ),
        pytest.param(
            on_node(without_pod(running_job(), *ROLLOUTS[1:]), "n1", ROLLOUTS[0], "j-trainer-2"),
            ROLLOUTS[0],
            id="one machine has all: better than nothing",
        ),
        pytest.param(
            on_node(on_node(running_job(), "n1", *ROLLOUTS), "n9", ROLLOUTS[2]), ROLLOUTS[2], id="the one elsewhere"
        ),
        pytest.param(running_job(job(checkpoint={"peerCopy": "Off"})), "", id="switched off"),
        pytest.param(running_job(job(recovery={"strategy": "WholeJob"})), "", id="all pods go at any fault"),
    ],
)  # fmt: skip
def test_who_keeps_for_the_first_trainer(view: JobView, keeper: str) -> None:
    assert keepers(view)["j-trainer-1"] == keeper


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param({"deleting": True}, id="being deleted"),
        pytest.param({"address": ""}, id="without an address"),
        pytest.param({"node": "dark"}, id="on a lost node"),
        pytest.param({"attempt": -1}, id="of the attempt before"),
        pytest.param({"role": Role.FENCED}, id="fenced"),
        pytest.param({"origin": Role.MANAGER, "role": Role.MANAGER}, id="managers"),
    ],
)
def test_who_cannot_keep_is_passed_over(unfit: dict[str, Any]) -> None:
    view = running_job()
    view = replace(view, nodes={**view.nodes, "dark": NodeView("dark", ready=False)})
    keeper = keepers(view)["j-trainer-1"]
    found = keepers(with_pod(view, keeper, **unfit))["j-trainer-1"]
    assert found in ROLLOUTS
    assert found != keeper


def test_the_next_trainer_by_rank_so_that_no_two_choose_the_same() -> None:
    spec = job(trainer={"replicas": 4, "parallelism": {"tensor": 4}}, rollout={"replicas": 0, "minReplicas": 0})
    found = keepers(running_job(spec))
    assert found == {f"j-trainer-{n}": f"j-trainer-{n % 4 + 1}" for n in range(1, 5)}


def test_a_rollout_that_became_a_trainer_has_a_keeper_and_is_none_before_the_others() -> None:
    view = running_job(job(**EQUAL))
    keeper = keepers(view)["j-trainer-1"]
    members = (Member(rank=0, pod=keeper, uid=f"uid-{keeper}"), view.status.members[1])
    found = keepers(with_status(view, members=members))
    assert set(found) == {keeper, "j-trainer-2"}
    assert found[keeper] == found["j-trainer-2"]
    assert found[keeper] in ROLLOUTS
