"""The adapter against the real embedded engine, and against answers that lie."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from safetensors.torch import save_file
from sort4.model import build_model

from robustrl.engines.adapter import Deadlines, EngineAdapter, EngineError


@pytest.fixture
def adapter(engine) -> EngineAdapter:
    return EngineAdapter(engine.url, engine.session, deadlines=Deadlines(control=1, weights=5))


@pytest.fixture
def directory(tmp_path):
    save_file(build_model(7).state_dict(), str(tmp_path / "model.safetensors"))
    return tmp_path


@pytest.mark.parametrize("mode", ["retract", "in_place", "abort"])
async def test_applied_weights_answer_and_carry_their_version(engine, directory, mode):
    adapter = EngineAdapter(engine.url, engine.session, pause_mode=mode)
    old = await engine.generate([1, 2])
    await adapter.apply_weights(directory, "0.1")
    new = await engine.generate([1, 2])
    assert new["output_ids"] != old["output_ids"]
    assert new["meta_info"]["weight_version"] == await adapter.version() == "0.1"
    assert await adapter.ready()


async def test_weights_that_are_refused_leave_the_engine_paused(adapter, engine, directory):
    with pytest.raises(EngineError, match=r"update_weights_from_disk: refused: no \*.safetensors"):
        await adapter.apply_weights(directory / "absent", "0.1")
    assert not await adapter.ready()
    await adapter.apply_weights(directory, "0.1")
    assert await adapter.ready()


async def test_a_label_aborts_nothing(adapter, engine):
    await engine.post("/slow_down", forward_sleep_time=0.01)
    pending = asyncio.create_task(engine.generate([1]))
    await asyncio.sleep(0.03)
    await adapter.set_version("2.15")
    assert (await pending)["meta_info"]["finish_reason"]["type"] == "length"
    assert await adapter.version() == "2.15"


async def test_the_deep_probe_sees_a_hang_that_ready_does_not(adapter, engine):
    assert await adapter.deep_probe(1.0)
    await engine.post("/slow_down", forward_sleep_time=600)
    pending = asyncio.create_task(engine.generate([1]))
    await asyncio.sleep(0.1)
    assert await adapter.ready()
    assert not await adapter.deep_probe(0.2)
    pending.cancel()


async def test_counters(adapter, engine):
    await engine.generate([1], params={"max_new_tokens": 5})
    counters = await adapter.counters()
    assert (counters.generation_tokens_total, counters.running, counters.queued) == (5, 0, 0)


async def test_a_dead_engine_is_an_error_and_not_ready(adapter, engine):
    gone = EngineAdapter("http://127.0.0.1:1", engine.session)
    assert not await gone.ready()
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1/metrics"):
        await gone.counters()


async def _liar(path: str, handler) -> TestServer:
    app = web.Application()

    async def ok(request: web.Request) -> web.Response:
        return web.json_response({"success": True, "weight_version": "old"})

    app.router.add_route("*", path, handler)
    app.router.add_route("*", "/{rest:.*}", ok)
    server = TestServer(app)
    await server.start_server()
    return server


async def _hangs(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


async def _says_no_with_200(request: web.Request) -> web.Response:
    return web.json_response({"success": False, "message": "shape mismatch"})


async def _no_json(request: web.Request) -> web.Response:
    return web.Response(text="Internal Server Error", status=500)


@pytest.mark.parametrize(
    ("path", "handler", "text"),
    [
        ("/pause_generation", _hangs, "pause_generation: no answer within 0.2 s"),
        ("/update_weights_from_disk", _hangs, "update_weights_from_disk: no answer within 0.3 s"),
        ("/update_weights_from_disk", _says_no_with_200, "refused: shape mismatch"),
        ("/update_weights_from_disk", _no_json, "HTTP 500: Internal Server Error"),
        ("/continue_generation", _no_json, "reports 'old'"),
    ],
)
async def test_an_engine_that_fails_is_believed_only_when_it_says_so_in_the_body(engine, path, handler, text):
    server = await _liar(path, handler)
    adapter = EngineAdapter(str(server.make_url("")), engine.session, deadlines=Deadlines(control=0.2, weights=0.3))
    with pytest.raises(EngineError, match=text):
        await adapter.apply_weights("/nowhere", "0.1")
    await server.close()


async def test_counters_of_an_engine_that_hangs_are_not_waited_for_as_long_as_other_answers(engine):
    server = await _liar("/metrics", _hangs)
    adapter = EngineAdapter(str(server.make_url("")), engine.session, deadlines=Deadlines(counters=0.1))
    with pytest.raises(EngineError, match=r"/metrics: no answer within 0.1 s"):
        await adapter.counters()
    await server.close()


@pytest.mark.parametrize(
    "body",
    [
        b"sglang:num_running_reqs NaN\n",
        b"sglang:num_running_reqs +Inf\n",
        b'sglang:num_running_reqs{a="b", ="c"} 1\n',
        b"sglang:num_running_reqs one\n",
        b"\xff\xfe",
    ],
)
async def test_counters_that_make_no_sense_are_the_engine_s_failure(engine, body):
    async def nonsense(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    server = await _liar("/metrics", nonsense)
    with pytest.raises(EngineError, match="/metrics"):
        await EngineAdapter(str(server.make_url("")), engine.session).counters()
    await server.close()


async def test_an_engine_that_is_being_stopped_is_an_error_like_any_other():
    """A pod that was told to end asks for what is under way while its engine is stopped."""
    session = ClientSession()
    await session.close()
    adapter = EngineAdapter("http://127.0.0.1:9", session)
    with pytest.raises(EngineError, match="Session is closed"):
        await adapter.counters()
    assert not await adapter.ready()


def test_the_adapter_does_not_load_torch():
    code = "import sys, robustrl.engines.adapter; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
