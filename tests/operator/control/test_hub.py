"""Which reports wake the operator; and a hub that is closed speaks for no operator any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.operator.build import NOW, SECOND

from robustrl_api.control import AgentReport, Assignment, Child, ChildState, Complaint
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


async def test_pods_that_are_turned_away_are_told_nothing_and_are_unheard_afterwards() -> None:
    hub = ControlHub(lambda: NOW, lambda _pod: None)
    other = PodIdentity("ns", "k-rollout-1", "u4")
    for pod in (POD, other):
        hub.assign(pod.uid, Assignment(etag="a", role=Role.ROLLOUT, heartbeat_seconds=60))
    held = asyncio.create_task(hub.exchange(POD, report("a")))
    await asyncio.sleep(0)
    with hub.turned_away("ns/j", {POD.uid}):
        async with asyncio.timeout(5):
            assert await held is None
        assert await hub.exchange(POD, report()) is None
        assert await hub.exchange(other, report()) is not None
        assert hub.heard(POD.uid) is None
    hub.assign(POD.uid, Assignment(etag="a", role=Role.ROLLOUT))
    assert await hub.exchange(POD, report()) is not None


@pytest.mark.parametrize(
    ("news", "wakes"),
    [
        ({}, False),
        ({"phase": "Train"}, False),
        ({"step": 1}, True),
        ({"leaving": True}, True),
        ({"complaint": Complaint(reason="R", message="m")}, True),
        ({"child": Child(state=ChildState.EXITED)}, True),
        ({"boot": "another"}, True),
    ],
)
async def test_what_a_rule_could_act_on_wakes_the_operator(news: dict[str, Any], wakes: bool) -> None:
    """With a heartbeat of minutes, a grace period of 30 s would be over before anybody looked."""
    heard: list[PodIdentity] = []
    hub = ControlHub(lambda: NOW, heard.append)
    hub.assign(POD.uid, Assignment(etag="a", role=Role.ROLLOUT))
    await hub.exchange(POD, report())
    await hub.exchange(POD, report().model_copy(update=news))
    assert heard == [POD] * (2 if wakes else 1)


async def test_since_when_reports_come_one_after_the_other() -> None:
    now = NOW
    hub = ControlHub(lambda: now, lambda _pod: None)
    hub.assign(POD.uid, Assignment(etag="a", role=Role.ROLLOUT, heartbeat_seconds=2))
    for after, since in ((0, 0), (2, 0), (8, 0), (15, 15), (17, 15)):
        now = NOW + after * SECOND
        await hub.exchange(POD, report())
        heard = hub.heard(POD.uid)
        assert heard is not None
        assert heard.steady_since == NOW + since * SECOND


async def test_when_the_life_of_an_agent_began() -> None:
    now = NOW
    hub = ControlHub(lambda: now, lambda _pod: None)
    hub.assign(POD.uid, Assignment(etag="a", role=Role.ROLLOUT))
    for after, boot, began in ((0, "one", 0), (1, "one", 0), (2, "another", 2), (3, "another", 2)):
        now = NOW + after * SECOND
        await hub.exchange(POD, report().model_copy(update={"boot": boot}))
        heard = hub.heard(POD.uid)
        assert heard is not None
        assert heard.begun == NOW + began * SECOND
