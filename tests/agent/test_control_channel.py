"""The agent's end of the control channel against the operator's, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession, web

from robustrl.supervisor.control_client import ControlClient
from robustrl.supervisor.state import PodState
from robustrl_api.control import AgentReport, Assignment, Child, ChildState
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig
from robustrl_operator.control.hub import ControlHub, PodIdentity
from robustrl_operator.control.server import control_app

POD = PodIdentity("ns", "p", "uid-p")
HEARTBEAT = 0.4


class Tokens:
    async def identify(self, token: str) -> PodIdentity | None:
        return POD if token == "right" else None


@dataclass
class Channel:
    """Both ends, and what came through."""

    hub: ControlHub
    state: PodState
    port: int
    runner: web.AppRunner
    taken: list[PodIdentity]
    applied: list[Assignment] = field(default_factory=list)
    posts: int = 0

    async def until(self, what: object, within: float = 5.0) -> None:
        async with asyncio.timeout(within):
            while not what():  # type: ignore[operator]  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def assign(self, etag: str, **fields: object) -> None:
        assignment = Assignment(etag=etag, role=Role.ROLLOUT, heartbeat_seconds=HEARTBEAT)
        self.hub.assign(POD.uid, assignment.model_copy(update=fields))

    def heard(self) -> AgentReport | None:
        heard = self.hub.heard(POD.uid)
        return heard.report if heard else None


async def serve(hub: ControlHub, port: int, channel: list[Channel]) -> web.AppRunner:
    app = control_app(hub, Tokens())

    async def count(_request: web.Request, _response: web.StreamResponse) -> None:
        channel[0].posts += 1

    app.on_response_prepare.append(count)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


@pytest.fixture
async def channel(tmp_path, unused_tcp_port: int) -> AsyncIterator[Channel]:  # type: ignore[no-untyped-def]
    token = tmp_path / "token"
    token.write_text("right")
    taken: list[PodIdentity] = []
    hub = ControlHub(lambda: datetime.now(UTC), taken.append)
    holder: list[Channel] = []
    runner = await serve(hub, unused_tcp_port, holder)
    channel = Channel(hub, PodState("p", Role.ROLLOUT), unused_tcp_port, runner, taken)
    holder.append(channel)
    config = PodConfig(
        job="j", namespace="ns", role=Role.ROLLOUT, control_url=f"http://127.0.0.1:{unused_tcp_port}", steps=1,
        memory_dir=str(tmp_path), token_file=str(token),
    )  # fmt: skip

    async def apply(assignment: Assignment) -> None:
        channel.applied.append(assignment)

    client = asyncio.create_task(ControlClient(config, channel.state, apply).run())
    yield channel
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)
    await channel.runner.cleanup()


async def test_assignment_arrives_at_once(channel: Channel) -> None:
    channel.assign("1")
    await channel.until(lambda: channel.applied)
    began = asyncio.get_running_loop().time()
    channel.assign("2", run=True)
    await channel.until(lambda: len(channel.applied) == 2)
    assert asyncio.get_running_loop().time() - began < HEARTBEAT / 2, "the held call was answered, not the next one"
    assert [a.etag for a in channel.applied] == ["1", "2"]


async def test_unchanged_assignment_is_applied_once(channel: Channel) -> None:
    channel.assign("1")
    await channel.until(lambda: channel.posts >= 4)
    assert len(channel.applied) == 1


async def test_news_is_reported_beside_the_call_that_is_held(channel: Channel) -> None:
    channel.assign("1", heartbeat_seconds=60.0)
    await channel.until(lambda: channel.applied and channel.heard())
    channel.state.child = Child(state=ChildState.EXITED, epoch=1)
    channel.state.notify()
    await channel.until(lambda: channel.heard().child.state is ChildState.EXITED, within=2)  # type: ignore[union-attr]


async def test_heartbeats_that_say_nothing_new_wake_nobody(channel: Channel) -> None:
    channel.assign("1")
    await channel.until(lambda: channel.posts >= 2)
    before = len(channel.taken)
    await channel.until(lambda: channel.posts >= 5)
    assert len(channel.taken) == before


async def test_much_news_leaves_one_call_in_the_air(channel: Channel) -> None:
    channel.assign("1")
    await channel.until(lambda: channel.applied)
    for step in range(1, 11):
        channel.state.step = step
        channel.state.notify()
        await asyncio.sleep(0.02)
    await asyncio.sleep(2 * HEARTBEAT)
    before = channel.posts
    await asyncio.sleep(2.5 * HEARTBEAT)
    assert channel.posts - before <= 4, "a heartbeat a heartbeat"


async def test_operator_away_and_back(channel: Channel) -> None:
    channel.assign("1")
    await channel.until(lambda: channel.applied)
    await channel.runner.cleanup()
    await asyncio.sleep(0.3)
    assert len(channel.applied) == 1, "the agent carries on with what it has"
    taken: list[PodIdentity] = []
    channel.hub = ControlHub(lambda: datetime.now(UTC), taken.append)
    channel.assign("2")
    channel.runner = await serve(channel.hub, channel.port, [channel])
    await channel.until(lambda: len(channel.applied) == 2, within=10)
    assert taken, "a new operator hears of everybody within a heartbeat or two"


@pytest.mark.parametrize("answer", [b'{"role": "king"}', b"no JSON", b"\xff", b"[" * 5000])
@pytest.mark.parametrize("status", [200, 502])
async def test_an_answer_that_makes_no_sense_changes_nothing(channel: Channel, answer: bytes, status: int) -> None:
    channel.assign("1")
    await channel.until(lambda: channel.applied)
    await channel.runner.cleanup()
    asked = asyncio.Event()

    async def nonsense(_request: web.Request) -> web.Response:
        asked.set()
        return web.Response(body=answer, status=status)

    app = web.Application()
    app.router.add_post("/v1/report", nonsense)
    confused = web.AppRunner(app, shutdown_timeout=0.1)
    await confused.setup()
    await web.TCPSite(confused, "127.0.0.1", channel.port).start()
    async with asyncio.timeout(10):
        await asked.wait()
    await confused.cleanup()
    channel.assign("2")
    channel.runner = await serve(channel.hub, channel.port, [channel])
    await channel.until(lambda: len(channel.applied) == 2, within=10)


@pytest.mark.parametrize(
    ("token", "body", "status", "reason"),
    [
        ("", b"{}", 401, "Unauthorized"),
        ("wrong", b"{}", 401, "Unauthorized"),
        ("right", b"{}", 400, "BadReport"),
        ("right", b'{"pod": "p", "boot": "b", "role": "king"}', 400, "BadReport"),
        ("right", b'{"pod": "other", "boot": "b", "role": "rollout"}', 403, "WrongPod"),
    ],
)
async def test_endpoint_refuses(channel: Channel, token: str, body: bytes, status: int, reason: str) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"http://127.0.0.1:{channel.port}/v1/report"
    async with ClientSession() as session, session.post(url, data=body, headers=headers) as response:
        assert (response.status, (await response.json())["error"]) == (status, reason)


async def test_endpoint_limits_the_size_of_a_report(channel: Channel) -> None:
    url = f"http://127.0.0.1:{channel.port}/v1/report"
    headers = {"Authorization": "Bearer right"}
    async with ClientSession() as session, session.post(url, data=b"x" * (1 << 20), headers=headers) as response:
        assert response.status == 413
