"""Rule labels: labels are effects of status, written wherever they differ."""

from __future__ import annotations

from tests.operator.build import draft, running_job, with_pod, with_status

from robustrl_api.names import Role
from robustrl_api.status import Member
from robustrl_operator.plan import Relabel
from robustrl_operator.plan.rules import labels


def test_right_labels_are_left_alone() -> None:
    assert labels.apply(draft(running_job())).actions == ()


def test_every_member_gets_the_new_epoch() -> None:
    after = labels.apply(draft(with_status(running_job(), epoch=2)))
    assert after.actions == (
        Relabel("j-trainer-1", "uid-j-trainer-1", Role.TRAINER, 2),
        Relabel("j-trainer-2", "uid-j-trainer-2", Role.TRAINER, 2),
    )


def test_a_promoted_rollout_is_labelled_trainer() -> None:
    members = (Member(rank=0, pod="j-rollout-6", uid="uid-j-rollout-6"), running_job().status.members[1])
    after = labels.apply(draft(with_status(running_job(), members=members)))
    assert Relabel("j-rollout-6", "uid-j-rollout-6", Role.TRAINER, 1) in after.actions


def test_pods_on_their_way_out_are_not_written_to() -> None:
    view = with_pod(with_status(running_job(), epoch=2), "j-trainer-1", deleting=True)
    assert [a.name for a in labels.apply(draft(view)).actions if isinstance(a, Relabel)] == ["j-trainer-2"]
