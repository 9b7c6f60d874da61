"""Who is asked, and what counts as no answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from aiohttp import web

from robustrl_operator.control import prober as probing
from robustrl_operator.control.prober import Prober
from robustrl_operator.plan import ProbePod
from robustrl_operator.view import Probe


class Agent:
    """An agent's endpoint that may let its callers wait."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.asked = 0
        self.port = 0

    async def health(self, _request: web.Request) -> web.Response:
        self.asked += 1
        await self.answering.wait()
        return web.Response()


@pytest_asyncio.fixture
async def agent() -> AsyncIterator[Agent]:
    agent, app = Agent(), web.Application()
    app.router.add_get("/healthz", agent.health)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    agent.port = runner.addresses[0][1]
    yield agent
    agent.answering.set()
    await runner.cleanup()


async def probed(agent: Agent, meanwhile: Callable[[], None] = lambda: None) -> bool:
    return (await result_of(agent.port, meanwhile)).answered


async def result_of(port: int, meanwhile: Callable[[], None] = lambda: None) -> Probe:
    done = asyncio.Event()
    prober = Prober(lambda: datetime.now(UTC), done.set, port)
    prober.ask(ProbePod("p", "u", "127.0.0.1", None))
    await asyncio.sleep(0.01)
    meanwhile()
    async with asyncio.timeout(60):
        await done.wait()
    result = prober.result("u")
    assert result is not None
    assert result.done
    return result


async def test_who_answers_lives_and_who_does_not_is_asked_once(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "STALL_SECONDS", 60.0)
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.1)
    assert not await probed(agent)
    assert agent.asked == 1
    agent.answering.set()
    monkeypatch.setattr(probing, "PROBE_SECONDS", 30.0)
    assert await probed(agent)


async def test_a_machine_is_reached_that_takes_the_connection_or_refuses_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.5)
    busy = await result_of(agent.port)
    assert (busy.answered, busy.reached) == (False, True)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = await result_of(closed.getsockname()[1])
    assert (refused.answered, refused.reached) == (False, True)


async def test_a_machine_that_does_not_take_the_connection_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.5)
    with socket.socket() as full, contextlib.ExitStack() as connections:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # so that the kernel drops whoever comes next, as if nobody were there
            waiting = connections.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        unreached = await result_of(full.getsockname()[1])
    assert (unreached.answered, unreached.reached) == (False, False)


async def test_an_operator_that_stood_still_asks_again(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.5)

    def stand_still() -> None:
        time.sleep(1.0)
        agent.answering.set()

    assert await probed(agent, stand_still)
    assert agent.asked == 2
