"""A hub that is closed speaks for no operator any more."""

from __future__ import annotations

import asyncio

from tests.operator.build import NOW

from robustrl_api.control import AgentReport, Assignment
from robustrl_api.names import Role
from robustrl_operator.control.hub import ControlHub, PodIdentity

POD = PodIdentity("ns", "j-rollout-3", "u3")


def report(applied: str = "") -> AgentReport:
    return AgentReport(pod=POD.pod, boot="b", role=Role.ROLLOUT, applied=applied)


async def test_a_call_that_is_held_is_answered_at_once_and_says_nothing() -> None:
    hub = ControlHub(lambda: NOW, lambda _pod: None)
    hub.assign(POD.uid, Assignment(etag="a", role=Role.ROLLOUT, heartbeat_seconds=60))
    held = asyncio.create_task(hub.exchange(POD, report("a")))
    await asyncio.sleep(0)
    assert not held.done()
    hub.close()
    async with asyncio.timeout(5):
        assert await held is None


async def test_nobody_is_told_anything_afterwards() -> None:
    hub = ControlHub(lambda: NOW, lambda _pod: None)
    hub.assign(POD.uid, Assignment(etag="a", role=Role.ROLLOUT))
    assert (await hub.exchange(POD, report())) is not None
    hub.close()
    assert await hub.exchange(POD, report()) is None
