"""An engine in this process, behind a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web
from sort4.model import VOCAB_SIZE, build_model

from robustrl.engines.embedded.scheduler import Scheduler
from robustrl.engines.embedded.server import EngineServer


@dataclass
class Engine:
    url: str
    scheduler: Scheduler
    session: aiohttp.ClientSession

    async def post(self, path: str, **body: object) -> tuple[int, dict]:
        async with self.session.post(self.url + path, json=body) as response:
            text = await response.text()
            return response.status, (await response.json() if text[:1] == "{" else {})

    async def get(self, path: str, timeout: float = 10) -> tuple[int, str]:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.session.get(self.url + path, timeout=limit) as response:
            return response.status, await response.text()

    async def generate(self, tokens: list[int], **body: object) -> dict:
        params = {"max_new_tokens": 8, "sampling_seed": 1, **body.pop("params", {})}
        status, answer = await self.post("/generate", input_ids=tokens, sampling_params=params, **body)
        assert status == 200, answer
        return answer


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    scheduler = Scheduler(build_model())
    scheduler.start()
    app = EngineServer(scheduler, vocab_size=VOCAB_SIZE, model_name="sort4", health_timeout_seconds=0.5).app()
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        yield Engine(f"http://127.0.0.1:{port}", scheduler, session)
    scheduler.stop()
    await runner.cleanup()
