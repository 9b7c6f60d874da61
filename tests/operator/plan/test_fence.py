"""Rule fence: who lost its seat is marked, then deleted; by force where its node is lost."""

from __future__ import annotations

from dataclasses import replace

from tests.operator.build import actions, draft, failed, running_job, with_pod

from robustrl_api.names import Role
from robustrl_api.status import Member
from robustrl_operator.plan import DeletePod, Relabel
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules import fence

ANOTHER = (Member(rank=0, pod="j-rollout-6", uid="uid-j-rollout-6"), running_job().status.members[1])


def unseated(scope: str) -> Draft:
    """The draft after rule 3 gave trainer 1's seat to another."""
    return draft(running_job(), {"j-trainer-1": failed(scope, "NodeLost")}).set(members=ANOTHER, epoch=2)


def test_marked_first_then_deleted() -> None:
    after = fence.apply(unseated("Node"))
    uid = "uid-j-trainer-1"
    assert after.actions == (
        Relabel("j-trainer-1", uid, Role.FENCED, 1),
        DeletePod("j-trainer-1", uid, force=True),
    )
    assert uid in after.gone, "later rules count without it"


def test_a_live_node_finishes_the_deletion_itself() -> None:
    (deletion,) = actions(fence.apply(unseated("Pod")), DeletePod)
    assert not deletion.force


def test_fenced_pods_go_even_when_a_new_operator_finds_them() -> None:
    view = with_pod(running_job(), "j-rollout-6", role=Role.FENCED)
    after = fence.apply(draft(view))
    assert after.actions == (DeletePod("j-rollout-6", "uid-j-rollout-6", force=False),)


def test_a_rollout_labelled_trainer_that_holds_no_seat_is_fenced() -> None:
    """Promoted in an epoch that is over: its label lags behind status, and status decides."""
    view = with_pod(running_job(), "j-rollout-6", role=Role.TRAINER, epoch=1)
    assert [type(a) for a in fence.apply(draft(view)).actions] == [Relabel, DeletePod]


def test_nobody_else_is_touched() -> None:
    view = running_job()
    assert fence.apply(draft(view)).actions == ()


def test_deleted_once() -> None:
    of = unseated("Pod")
    deleting = with_pod(of.view, "j-trainer-1", deleting=True)
    assert fence.apply(replace(of, view=deleting)).actions == ()
