"""The agent's calls to the managers: deadlines, refusals, and managers that move while a call is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from robustrl.supervisor.managers_client import ManagersAway, ManagersClient, ManagersRefused

LONG_SECONDS = 60.0


@pytest.fixture
async def client() -> AsyncIterator[ManagersClient]:
    client = ManagersClient()
    yield client
    await client.close()


@pytest.fixture
async def managers() -> AsyncIterator[str]:
    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"error": "Fenced", "message": "epoch 4 rules"}, status=409)

    async def never(_request: web.Request) -> web.Response:
        await asyncio.sleep(LONG_SECONDS)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_get("/refuse", refuse)
    app.router.add_get("/never", never)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_no_managers_are_known(client: ManagersClient) -> None:
    with pytest.raises(ManagersAway, match="no managers are known yet"):
        await client.call("GET", "/")


async def test_a_refusal_is_an_answer(client: ManagersClient, managers: str) -> None:
    client.url = managers
    with pytest.raises(ManagersRefused, match="Fenced: epoch 4 rules"):
        await client.call("GET", "/refuse")


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("answer", [b"[]", b"null", b"hello", b"\xff", b""])
async def test_what_is_no_answer_of_the_managers_is_none(client: ManagersClient, status: int, answer: bytes) -> None:
    """Whoever has got the address of managers that are gone answers as he likes."""

    async def speak(_request: web.Request) -> web.Response:
        return web.Response(body=answer, status=status, content_type="application/json")

    app = web.Application()
    app.router.add_get("/", speak)
    async with TestServer(app) as server:
        client.url = str(server.make_url("")).rstrip("/")
        with pytest.raises(ManagersAway):
            await client.call("GET", "/")


async def test_a_call_has_a_deadline(client: ManagersClient, managers: str) -> None:
    client.url = managers
    with pytest.raises(ManagersAway):
        await client.call("GET", "/never", seconds=0.05)


@pytest.mark.parametrize("elsewhere", ["http://127.0.0.1:9", ""])
async def test_a_call_under_way_is_given_up_when_the_managers_move(
    client: ManagersClient, managers: str, elsewhere: str
) -> None:
    client.url = managers
    call = asyncio.create_task(client.call("GET", "/never", seconds=LONG_SECONDS))
    await asyncio.sleep(0.1)
    client.url = managers
    await asyncio.sleep(0.05)
    assert not call.done(), "they have not moved"
    client.url = elsewhere
    async with asyncio.timeout(LONG_SECONDS / 2):
        with pytest.raises(ManagersAway):
            await call
