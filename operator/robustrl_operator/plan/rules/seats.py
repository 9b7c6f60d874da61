"""Vacant seats are taken by new trainer pods, else by rollouts to spare; a full table opens the first epoch.

Invariant: a seat once taken in an epoch is not given to another pod in that epoch; only a fault vacates it, and
that raises the epoch.
"""

from __future__ import annotations

from robustrl_api.names import EventReason, Role
from robustrl_api.status import Member, Stage
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.standby import promotable, seat


def apply(draft: Draft) -> Draft:
    members = draft.status.members or tuple(Member(rank=r) for r in range(draft.spec.trainer.replicas))
    vacant = [member.rank for member in members if not member.uid]
    if not vacant:
        return draft
    takers = [pod for pod in draft.healthy(Role.TRAINER) if not draft.is_member(pod.uid) and pod.address]
    if draft.status.epoch > 0 and draft.status.recovery is not None and draft.status.recovery.scope != "Job":
        takers += promotable(draft)
    seated = dict(zip(vacant, takers, strict=False))
    members = tuple(seat(m.rank, seated[m.rank]) if m.rank in seated else m for m in members)
    draft = draft.set(members=members)
    if len(seated) < len(vacant):
        return draft.wait(f"{len(vacant) - len(seated)} trainer pods to report")
    return _open(draft)


def _open(draft: Draft) -> Draft:
    """All seats are taken: the trainers may start."""
    if draft.status.epoch == 0:
        return draft.set(epoch=1).tell(EventReason.TRAINER_RESTARTED, "epoch 1: all trainers are there")
    recovery = draft.status.recovery
    if recovery is not None and recovery.stage is Stage.WAITING_FOR_POD:
        draft = draft.set(recovery=recovery.model_copy(update={"stage": Stage.RESTARTING}))
    return draft.tell(EventReason.TRAINER_RESTARTED, f"epoch {draft.status.epoch}: all trainers are there")
