"""Whom a fault strikes, with what, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from robustrl_api.control import Harm
from robustrl_api.names import Role
from robustrl_operator.faults.kind import KINDS, Blow, FaultKind, Means, aim
from robustrl_operator.faults.matrix import MATRIX
from robustrl_operator.faults.strike import strike

PODS = {Role.TRAINER: ["t0", "t1", "t2"], Role.ROLLOUT: ["r0", "r1"], Role.MANAGER: ["m"]}
CUT = Means.CUT_POWER


@pytest.mark.parametrize(
    ("kind", "index", "blows"),
    [
        (FaultKind.TRAINER, -1, [Blow("t2", CUT)]),
        (FaultKind.TRAINER, 0, [Blow("t0", CUT)]),
        (FaultKind.TRAINER_PAIR, -1, [Blow("t2", CUT), Blow("t0", CUT)]),
        (FaultKind.TRAINER_PAIR, 1, [Blow("t1", CUT), Blow("t2", CUT)]),
        (FaultKind.TRAINERS, -1, [Blow("t0", CUT), Blow("t1", CUT), Blow("t2", CUT)]),
        (FaultKind.TRAINER_AND_ROLLOUT, -1, [Blow("t2", CUT), Blow("r1", CUT)]),
        (FaultKind.CHECKPOINT_DAMAGE, 1,
         [Blow("t1", Harm.STOP), Blow("t1", Means.DAMAGE_CHECKPOINT), Blow("t1", Harm.KILL)]),
        (FaultKind.LEASE, -1, [Blow("", Means.TAKE_LEASE)]),
    ],
)  # fmt: skip
def test_blows(kind: FaultKind, index: int, blows: list[Blow]) -> None:
    assert list(aim(kind, PODS.__getitem__, index)) == blows


@pytest.mark.parametrize(
    ("kind", "index", "why"),
    [
        (FaultKind.TRAINER, 3, "there is no trainer 3 now"),
        (FaultKind.MANAGER, -2, "there is no manager to strike now"),
    ],
)
def test_whom_there_is_not(kind: FaultKind, index: int, why: str) -> None:
    with pytest.raises(LookupError, match=why):
        aim(kind, PODS.__getitem__, index)


def test_a_pair_takes_two() -> None:
    with pytest.raises(LookupError, match="there are 1 to strike, not 2"):
        aim(FaultKind.TRAINER_PAIR, lambda _role: ["t0"])


class Hand:
    """Notes what is done; every blow takes a moment."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def playing(self, role: Role) -> list[str]:
        return PODS[role]

    async def do(self, blow: Blow) -> None:
        self.said.append(f"{blow.deed} begins")
        await asyncio.sleep(0.01)
        self.said.append(f"{blow.deed} ends")


async def test_several_are_struck_at_once_and_one_thing_after_another() -> None:
    hand = Hand()
    assert await strike(hand, FaultKind.TRAINER_PAIR) == ("t2", "t0")
    assert hand.said == ["CutPower begins"] * 2 + ["CutPower ends"] * 2
    hand = Hand()
    assert await strike(hand, FaultKind.CHECKPOINT_DAMAGE) == ("t2",)
    assert [words for words in hand.said if "begins" in words] == [
        "Stop begins", "DamageCheckpoint begins", "Kill begins",
    ]  # fmt: skip
    assert hand.said[1] == "Stop ends"


def test_rows_have_names_of_their_own_and_every_kind_has_one() -> None:
    names = [row.name for row in MATRIX]
    assert len(names) == len(set(names))
    assert {row.kind for row in MATRIX} == set(KINDS) == set(FaultKind)
