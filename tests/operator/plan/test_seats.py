"""Rule seats: vacant seats are taken, a full table opens the first epoch, and a seat that is taken stays taken."""

from __future__ import annotations

from tests.operator.build import draft, job, pod, running_job, with_status

from robustrl_api.names import Role
from robustrl_api.status import Member, RecoveryStatus, Stage
from robustrl_operator.analyze import Health, Verdict
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.rules import seats

STARTING = Verdict(Health.STARTING)


def fresh(**status: object) -> Draft:
    return draft(with_status(running_job(), **{"epoch": 0, "members": (), **status}))


def pods_of(of: Draft) -> list[str]:
    return [member.pod for member in of.status.members]


def test_all_trainers_there_open_epoch_one() -> None:
    after = seats.apply(fresh())
    assert pods_of(after) == ["j-trainer-1", "j-trainer-2"]
    assert [m.rank for m in after.status.members] == [0, 1]
    assert after.status.epoch == 1


def test_a_trainer_that_still_starts_is_waited_for() -> None:
    view = with_status(running_job(), epoch=0, members=())
    after = seats.apply(draft(view, {"j-trainer-2": STARTING}))
    assert pods_of(after) == ["j-trainer-1", ""]
    assert after.status.epoch == 0
    assert after.waiting_for == "1 trainer pods to report"


def test_at_the_start_no_rollout_is_taken() -> None:
    view = with_status(running_job(), epoch=0, members=())
    assert "j-rollout-6" not in pods_of(seats.apply(draft(view, {"j-trainer-2": STARTING})))


def test_in_a_recovery_a_rollout_to_spare_takes_the_seat_if_it_comes_first() -> None:
    members = (Member(rank=0, pod="j-trainer-1", uid="uid-j-trainer-1"), Member(rank=1))
    view = with_status(running_job(), epoch=2, members=members, recovery=RecoveryStatus(stage=Stage.WAITING_FOR_POD))
    after = seats.apply(draft(view, {"j-trainer-2": STARTING}))
    assert pods_of(after) == ["j-trainer-1", "j-rollout-3"]
    assert after.status.recovery
    assert after.status.recovery.stage is Stage.RESTARTING
    assert after.status.epoch == 2


def test_new_trainer_pods_come_before_rollouts() -> None:
    members = (Member(rank=0, pod="j-trainer-1", uid="uid-j-trainer-1"), Member(rank=1))
    view = with_status(running_job(), epoch=2, members=members, recovery=RecoveryStatus())
    assert pods_of(seats.apply(draft(view))) == ["j-trainer-1", "j-trainer-2"]


def test_a_whole_job_restart_takes_no_rollout() -> None:
    view = with_status(running_job(), epoch=2, members=(), recovery=RecoveryStatus(scope="Job"))
    assert pods_of(seats.apply(draft(view, {"j-trainer-2": STARTING}))) == ["j-trainer-1", ""]


def test_taken_seats_stay() -> None:
    view = running_job(job(), pods=(*running_job().pods, pod("j-trainer-9", Role.TRAINER)))
    assert seats.apply(draft(view)) == draft(view)
