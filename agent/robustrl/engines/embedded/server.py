"""The HTTP surface: SGLang's names and answers over the scheduler. Routes only; the scheduler does the
work."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from robustrl.engines.embedded import weights
from robustrl.engines.embedded.request import (
    AbortBody,
    CheckerBody,
    GenerateBody,
    JsonObject,
    PauseBody,
    SamplingParams,
    SlowDownBody,
    UpdateWeightsBody,
    VersionBody,
)
from robustrl.engines.embedded.scheduler import Scheduler
from robustrl.engines.embedded.sequence import BadLogits, Sequence
from robustrl.engines.embedded.stats import exposition

log = logging.getLogger(__name__)
T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)

_BODY_LIMIT_BYTES = 1 << 20


class EngineServer:
    """One model behind SGLang's endpoints.

    Args:
        scheduler: started by the caller.
        vocab_size: token ids from here on are refused.
        model_name: what ``/model_info`` reports as ``model_path``.
        health_timeout_seconds: how long ``/health`` waits for its one token before it answers 503.
    """

    def __init__(
        self, scheduler: Scheduler, *, vocab_size: int, model_name: str, health_timeout_seconds: float = 20.0
    ) -> None:
        self._scheduler = scheduler
        self._vocab_size = vocab_size
        self._model_name = model_name
        self._health_timeout = health_timeout_seconds
        self._healthy = True
        self._started = time.time()
        self._version_at_start = scheduler.version

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES, middlewares=[_contract_errors])
        app.router.add_post("/generate", self.generate)
        app.router.add_put("/generate", self.generate)
        app.router.add_post("/abort_request", self.abort_request)
        app.router.add_post("/pause_generation", self.pause_generation)
        app.router.add_post("/continue_generation", self.continue_generation)
        app.router.add_get("/flush_cache", self.flush_cache)
        app.router.add_post("/flush_cache", self.flush_cache)
        app.router.add_post("/update_weights_from_disk", self.update_weights_from_disk)
        app.router.add_post("/update_weight_version", self.update_weight_version)
        app.router.add_post("/weights_checker", self.weights_checker)
        app.router.add_get("/model_info", self.model_info)
        app.router.add_get("/server_info", self.server_info)
        app.router.add_get("/v1/loads", self.loads)
        app.router.add_get("/ready", self.ready)
        app.router.add_get("/health", self.health)
        app.router.add_get("/health_generate", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/slow_down", self.slow_down)
        return app

    async def generate(self, request: web.Request) -> web.Response:
        body = await _parse(request, GenerateBody)
        self._check(body.input_ids)
        return web.json_response(await self._generate(Sequence.of(body, time.monotonic())))

    async def abort_request(self, request: web.Request) -> web.Response:
        body = await _parse(request, AbortBody)
        await self._call(
            lambda: self._scheduler.abort(lambda s: body.abort_all or (body.rid != "" and s.rid == body.rid))
        )
        return web.Response()

    async def pause_generation(self, request: web.Request) -> web.Response:
        body = await _parse(request, PauseBody)
        await self._call(lambda: self._scheduler.pause(body.mode))
        return web.json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def continue_generation(self, request: web.Request) -> web.Response:
        await self._call(self._scheduler.resume)
        return web.json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def flush_cache(self, request: web.Request) -> web.Response:
        if pending := await self._call(self._scheduler.pending):
            return web.Response(status=400, text=f"Flush cache failed: {pending} requests are pending.")
        return web.Response(text="Cache flushed.")

    async def update_weights_from_disk(self, request: web.Request) -> web.Response:
        body = await _parse(request, UpdateWeightsBody)
        try:
            kept = await self._call(lambda: self._update(body), when_idle=not body.abort_all_requests)
        except weights.WeightsRefused as refused:
            return web.json_response({"success": False, "message": str(refused), "num_paused_requests": 0}, status=400)
        return web.json_response(
            {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": kept}
        )

    def _update(self, body: UpdateWeightsBody) -> int:
        if body.abort_all_requests:
            self._scheduler.abort_all()
        weights.load(self._scheduler.model, Path(body.model_path))
        if body.weight_version is not None:
            self._scheduler.version = body.weight_version
        return self._scheduler.pending()

    async def update_weight_version(self, request: web.Request) -> web.Response:
        body = await _parse(request, VersionBody)

        def relabel() -> None:
            if body.abort_all_requests:
                self._scheduler.abort_all()
            self._scheduler.version = body.new_version

        await self._call(relabel)
        return web.json_response(
            {"success": True, "message": "Weight version updated", "new_version": body.new_version}
        )

    async def weights_checker(self, request: web.Request) -> web.Response:
        await _parse(request, CheckerBody)
        checksums = await self._call(lambda: weights.checksums(self._scheduler.model))
        return web.json_response({"success": True, "message": "Success.", "ranks": [{"checksums": checksums}]})

    async def model_info(self, request: web.Request) -> web.Response:
        info = {
            "model_path": self._model_name,
            "is_generation": True,
            "weight_version": self._scheduler.version,
        }
        return web.json_response(info)

    async def server_info(self, request: web.Request) -> web.Response:
        # Asks the scheduler, and so hangs with it: the deep probe. The version is the one at the start, as
        # in SGLang.
        state = await self._call(lambda: {"paused": self._scheduler.paused, "pending": self._scheduler.pending()})
        return web.json_response(
            {
                "model_path": self._model_name,
                "weight_version": self._version_at_start,
                "internal_states": [state],
                "max_running_requests": self._scheduler.max_running,
                "vocab_size": self._vocab_size,
                "uptime_seconds": time.time() - self._started,
            }
        )

    async def loads(self, request: web.Request) -> web.Response:
        stats = self._scheduler.stats
        load = {
            "dp_rank": 0,
            "num_running_reqs": stats.num_running_reqs,
            "num_waiting_reqs": stats.num_queue_reqs,
            "gen_throughput": stats.gen_throughput,
        }
        return web.json_response({"loads": [load]})

    async def ready(self, request: web.Request) -> web.Response:
        # From the HTTP side's own knowledge: still green with a hung scheduler until /health has found out.
        return web.Response(status=200 if self._healthy and not self._scheduler.paused else 503)

    async def health(self, request: web.Request) -> web.Response:
        body = GenerateBody(
            input_ids=[0],
            sampling_params=SamplingParams(max_new_tokens=1, temperature=0),
            rid=f"HEALTH_CHECK_{uuid.uuid4().hex}",
        )
        try:
            await asyncio.wait_for(self._generate(Sequence.of(body, time.monotonic())), self._health_timeout)
            self._healthy = True
        except BadLogits:  # the engine answers; what it answers is the weights' matter
            self._healthy = True
        except TimeoutError:
            self._healthy = False
        return web.Response(status=200 if self._healthy else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        text = exposition(self._scheduler.stats, self._model_name)
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def slow_down(self, request: web.Request) -> web.Response:
        seconds = (await _parse(request, SlowDownBody)).forward_sleep_time or 0.0
        await self._call(lambda: setattr(self._scheduler, "forward_sleep_seconds", seconds))
        return web.Response()

    # -- helpers ----------------------------------------------------------------------------------------

    def _check(self, tokens: list[int]) -> None:
        if max(tokens) >= self._vocab_size:
            raise ContractError(f"token id {max(tokens)} is outside the vocabulary of {self._vocab_size}")
        limit = self._scheduler.max_length
        if limit is not None and len(tokens) >= limit:
            raise ContractError(f"the input ({len(tokens)} tokens) is longer than the context allows ({limit})")

    async def _generate(self, sequence: Sequence) -> JsonObject:
        self._scheduler.submit(sequence)
        try:
            return await asyncio.wrap_future(sequence.future)
        except asyncio.CancelledError:  # the client went away, or the health check gave up
            self._scheduler.call(lambda: self._scheduler.abort(lambda s: s is sequence))
            raise

    def _call(self, command: Callable[[], T], *, when_idle: bool = False) -> Awaitable[T]:
        return asyncio.wrap_future(self._scheduler.call(command, when_idle=when_idle))


class ContractError(ValueError):
    """The request breaks the surface's contract; answered 400."""


async def _parse(request: web.Request, model: type[B]) -> B:
    return model.model_validate_json(await request.read() or b"{}")


@web.middleware
async def _contract_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except (ValidationError, ContractError) as error:
        return web.json_response({"error": {"message": _sentence(error), "type": "BadRequest"}}, status=400)
    except BadLogits as error:
        return web.json_response({"error": {"message": str(error), "type": "InternalServerError"}}, status=500)


def _sentence(error: ValidationError | ContractError) -> str:
    if isinstance(error, ContractError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
