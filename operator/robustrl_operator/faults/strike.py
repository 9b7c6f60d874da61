"""Faults made from outside, by the hand that a body lends: the tests' way, and `robustrl run --fault`.

`robustrl inject` strikes the same kinds through the operator and the agents (`plan.rules.inject`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Protocol

from robustrl_api.names import Role
from robustrl_operator.faults.kind import Blow, FaultKind, aim

log = logging.getLogger(__name__)


class Hand(Protocol):
    """What a body's keeper can do to its pods, by the pod's name."""

    def playing(self, role: Role) -> list[str]:
        """Pods that play a role now; trainers by rank."""

    async def do(self, blow: Blow) -> None:
        """Returns when the harm is done."""


async def strike(hand: Hand, kind: FaultKind, index: int = -1) -> tuple[str, ...]:
    """Make something fail now; the pods that were hit. What strikes several pods strikes them at once.

    Args:
        index: which of the pods of the role, trainers in order of rank; the last one if nothing is said.

    Raises:
        LookupError: there is no such pod now.
    """
    blows = aim(kind, hand.playing, index)
    for deed, together in itertools.groupby(blows, key=lambda blow: blow.deed):
        await asyncio.gather(*(_do(hand, kind, blow) for blow in together))
        log.info("%s is done", deed)
    return tuple(dict.fromkeys(blow.pod for blow in blows if blow.pod))


async def _do(hand: Hand, kind: FaultKind, blow: Blow) -> None:
    log.warning("fault %s strikes %s: %s", kind, blow.pod or "what surrounds the job", blow.deed)
    await hand.do(blow)
