"""The managers' HTTP surface. Routes only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from robustrl.managers.holders import HolderMessage
from robustrl.managers.managers import Managers
from robustrl.managers.messages import (
    BatchMessage,
    CommitMessage,
    EngineMessage,
    JoinMessage,
    RollbackMessage,
    RosterMessage,
    VersionMessage,
)
from robustrl.managers.metrics import exposition
from robustrl.managers.refusal import Refused
from robustrl_api.version import Version

log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

_BODY_LIMIT_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_LONGEST_WAIT_SECONDS = 60.0
_STALLED_SECONDS = 60.0
"""A caller that takes nothing for so long is gone. A copy of the ledger is on the volume while it is sent."""


class Server:
    """Routes over one job's managers."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES, middlewares=[_refusals])
        app.router.add_post(r"/v1/epochs/{epoch:\d+}/join", self.join)
        app.router.add_post(r"/v1/epochs/{epoch:\d+}/rollback", self.roll_back)
        app.router.add_post(r"/v1/batches/{step:\d+}", self.batch)
        app.router.add_post(r"/v1/commits/{step:\d+}", self.commit)
        app.router.add_put("/v1/versions", self.announce)
        app.router.add_get("/v1/versions/current", self.current_version)
        app.router.add_put("/v1/versions/{root:[0-9a-f]{32}}/holders", self.hold)
        app.router.add_put("/v1/engines/{pod}", self.register)
        app.router.add_delete("/v1/engines/{pod}", self.leave)
        app.router.add_put("/v1/roster", self.roster)
        app.router.add_get("/v1/progress", self.progress)
        app.router.add_get("/v1/curve", self.curve)
        app.router.add_get("/v1/audit", self.audit)
        app.router.add_get("/v1/ledger", self.ledger)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/healthz", self.healthz)
        return app

    async def join(self, request: web.Request) -> web.Response:
        await _read(request, JoinMessage)
        return web.json_response(await self._managers.join(int(request.match_info["epoch"])))

    async def roll_back(self, request: web.Request) -> web.Response:
        message = await _read(request, RollbackMessage)
        return web.json_response(await self._managers.roll_back(int(request.match_info["epoch"]), message.step))

    async def batch(self, request: web.Request) -> web.Response:
        message = await _read(request, BatchMessage)
        found = await self._managers.requests.take_batch(
            message.epoch, _step(request), message.rank, message.world_size, message.wait_seconds
        )
        if found is None:
            return web.Response(status=204)
        body = {"batch": found.batch, "step": found.step, "trajectories": found.trajectories}
        return web.json_response(body)

    async def commit(self, request: web.Request) -> web.Response:
        message = await _read(request, CommitMessage)
        following = await self._managers.commit(
            _step(request), message.epoch, message.batch, message.digests, message.metrics
        )
        return web.json_response({"step": following})

    async def announce(self, request: web.Request) -> web.Response:
        announcement = (await _read(request, VersionMessage)).announcement()
        await self._managers.versions.announce(announcement)
        return web.json_response({"version": str(announcement.version)})

    async def current_version(self, request: web.Request) -> web.Response:
        found = await self._managers.current_version(_after(request), _wait_seconds(request))
        return web.Response(status=204) if found is None else web.json_response(found)

    async def hold(self, request: web.Request) -> web.Response:
        message = await _read(request, HolderMessage)
        return web.json_response(self._managers.versions.holders.announce(request.match_info["root"], message))

    async def register(self, request: web.Request) -> web.Response:
        report = (await _read(request, EngineMessage)).report(request.match_info["pod"])
        return web.json_response(self._managers.register(report))

    async def leave(self, request: web.Request) -> web.Response:
        self._managers.rollouts.drop(request.match_info["pod"], "left")
        return web.json_response({})

    async def roster(self, request: web.Request) -> web.Response:
        message = await _read(request, RosterMessage)
        await self._managers.set_roster(message.epoch, message.rollouts)
        return web.json_response({"epoch": message.epoch})

    async def progress(self, request: web.Request) -> web.Response:
        return web.json_response(await self._managers.progress())

    async def curve(self, request: web.Request) -> web.Response:
        return web.json_response(await self._managers.curve())

    async def audit(self, request: web.Request) -> web.Response:
        return web.json_response(await self._managers.audit())

    async def ledger(self, request: web.Request) -> web.StreamResponse:
        """The whole ledger as it is now: for `robustrl audit` on another machine."""
        response = web.StreamResponse(headers={"Content-Type": "application/vnd.sqlite3"})
        async with self._managers.snapshot() as copy:
            response.content_length = copy.stat().st_size
            await response.prepare(request)
            with copy.open("rb") as stream:
                while block := await asyncio.to_thread(stream.read, _BLOCK_BYTES):
                    async with asyncio.timeout(_STALLED_SECONDS):
                        await response.write(block)
        return response

    async def metrics(self, request: web.Request) -> web.Response:
        text = exposition(await self._managers.progress())
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=text.encode(), headers=headers)

    async def healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"ok": True})


def _step(request: web.Request) -> int:
    return int(request.match_info["step"])


def _after(request: web.Request) -> Version | None:
    text = request.query.get("after", "")
    try:
        return Version.parse(text) if text else None
    except ValueError as error:
        raise Refused("BadRequest", f"after: {error}", status=400) from error


def _wait_seconds(request: web.Request) -> float:
    try:
        return min(_LONGEST_WAIT_SECONDS, max(0.0, float(request.query.get("wait_seconds", "5"))))
    except ValueError as error:
        raise Refused("BadRequest", f"wait_seconds: {error}", status=400) from error


async def _read(request: web.Request, message: type[M]) -> M:
    try:
        return message.model_validate_json(await request.read() or b"{}")
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
        raise Refused("BadRequest", "; ".join(faults), status=400) from error


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        log.info("%s %s refused: %s: %s", request.method, request.path, refused.reason, refused)
        return web.json_response(refused.body(), status=refused.status)
    except web.HTTPException as error:
        body = {"error": error.reason.replace(" ", ""), "message": f"{request.method} {request.path}: {error.reason}"}
        return web.json_response(body, status=error.status)
