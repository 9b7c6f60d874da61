"""Answers of engines that are ill, as the managers read them."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from robustrl.managers.engine_client import EngineFailure, HttpEngineClient, RequestRejected, TurnRequest

META = {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.5, 3, None]], "weight_version": "0.1"}
SPANS = [{"version": "0.1", "start": 0, "end": 1}, {"version": "0.2", "start": 1, "end": 2}]


async def ask(handler, timeout: float = 5.0):
    app = web.Application()
    app.router.add_post("/generate", handler)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        url = str(server.make_url("")).rstrip("/")
        return await HttpEngineClient(session).generate(url, TurnRequest("r", [1], {}), timeout)


def says(body, status: int = 200):
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return handler


async def dies(request: web.Request) -> web.Response:
    request.transport.abort()
    return web.Response()


async def hangs(request: web.Request) -> web.Response:
    await asyncio.sleep(5)
    return web.Response()


@pytest.mark.parametrize(("extra", "versions"), [({}, ["0.1"]), ({"weight_versions": SPANS}, ["0.1", "0.2"])])
async def test_an_answer_is_read_with_every_version_that_drew_it(extra, versions):
    found = await ask(says({"output_ids": [3], "meta_info": {**META, **extra}, "text": "c"}))
    assert (found.tokens, found.logprobs, found.versions) == ([3], [-0.5], versions)
    assert (found.finish_reason, found.text) == ("stop", "c")


@pytest.mark.parametrize(
    "handler",
    [
        dies,
        hangs,
        says({}, 500),
        says({}),
        says([]),
        says({"output_ids": [3, 4], "meta_info": META}),
        says({"output_ids": [3], "meta_info": {**META, "finish_reason": None}}),
        says({"output_ids": [3], "meta_info": {**META, "output_token_logprobs": [[None, 3, None]]}}),
        says({"output_ids": [3], "meta_info": {**META, "output_token_logprobs": [[float("nan"), 3, None]]}}),
        says({"output_ids": [3], "meta_info": {**META, "output_token_logprobs": [[float("-inf"), 3, None]]}}),
        says({"output_ids": [float("inf")], "meta_info": META}),
    ],
)
async def test_an_answer_that_is_no_use_is_the_engine_s_failure(handler):
    with pytest.raises(EngineFailure):
        await ask(handler, timeout=0.3)


async def test_what_an_ill_engine_says_is_told_in_short():
    with pytest.raises(EngineFailure, match=r"HTTP 500: .*no numbers") as failed:
        await ask(says({"error": {"message": "the logits are no numbers" + "x" * 9000}}, 500))
    assert len(str(failed.value)) < 500


class Silent(aiohttp.ClientError):
    """Many of the HTTP client's errors have no text."""


async def test_a_failure_without_words_is_told_by_its_name(monkeypatch):
    async def fails(*_):
        raise Silent

    monkeypatch.setattr(HttpEngineClient, "_post", fails)
    with pytest.raises(EngineFailure, match="http://e: Silent"):
        await HttpEngineClient(None).generate("http://e", TurnRequest("r", [1], {}), 1.0)


@pytest.mark.parametrize("status", [413, 422])
async def test_a_request_that_every_engine_would_refuse_condemns_none(status):
    """Too long, or with a parameter that engines of its kind do not know: each in turn was put into quarantine."""
    with pytest.raises(RequestRejected, match="no such parameter"):
        await ask(says({"detail": "no such parameter"}, status))


async def test_a_refusal_in_plain_text_is_one_all_the_same():
    async def refuses(request: web.Request) -> web.Response:
        return web.Response(status=413, text="Maximum request body size 1048576 exceeded")

    with pytest.raises(RequestRejected, match="Maximum request body size"):
        await ask(refuses)


async def test_a_refused_request_is_not_the_engine_s_failure():
    with pytest.raises(RequestRejected, match="too long"):
        await ask(says({"error": {"message": "too long"}}, 400))
