"""The agent's own endpoint: answers probes, hands checkpoints in memory to peers, and takes copies of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import ValidationError

from robustrl.checkpoint.folder import BadCopy, read_manifest
from robustrl.checkpoint.keeping import Declined, Keeping
from robustrl.checkpoint.offer import ADDRESS, Offer
from robustrl.checkpoint.shelf import Shelf
from robustrl.supervisor.state import PodState
from robustrl_api.version import Version

MAX_PROBE_SECONDS = 600.0
PROBE_MARGIN_SECONDS = 0.5


class AgentEndpoint:
    """An aiohttp server on the pod's address.

    Args:
        keeping: takes the offers of others.
        works: whether the role's process shows within some seconds that it works.
    """

    def __init__(
        self,
        state: PodState,
        shelf: Shelf,
        keeping: Keeping,
        host: str,
        port: int,
        works: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._state, self._shelf, self._host, self._port, self._works = state, shelf, host, port, works
        self._keeping = keeping
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/works", self._deep_probe)
        app.router.add_get("/checkpoints/{version}", self._roots)
        app.router.add_get("/checkpoints/{version}/{rank}/{file}", self._file)
        app.router.add_post(ADDRESS, self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"pod": self._state.pod, "boot": self._state.boot})

    async def _deep_probe(self, request: web.Request) -> web.Response:
        """200 if the role's process shows that it works, 503 if it does not in the time given by `seconds`."""
        try:
            seconds = min(MAX_PROBE_SECONDS, max(0.0, float(request.query.get("seconds", "1"))))
        except ValueError as error:
            raise web.HTTPBadRequest(text="seconds: expected a number") from error
        try:
            async with asyncio.timeout(seconds + PROBE_MARGIN_SECONDS):
                works = await self._works(seconds)
        except TimeoutError:
            works = False
        return web.json_response({"works": works}, status=200 if works else 503)

    async def _roots(self, request: web.Request) -> web.Response:
        """Which ranks' parts of a checkpoint are here, with their root digests."""
        roots = {}
        for folder in self._shelf.copies(_version(request)):
            try:
                roots[folder.name] = read_manifest(folder).root
            except BadCopy:
                continue
        return web.json_response(roots)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        for folder in self._shelf.copies(_version(request)):
            path = folder / request.match_info["file"]
            # Only names that the folder itself lists are served, so no path leads out of it.
            if folder.name == request.match_info["rank"] and path in set(folder.iterdir()):
                return web.FileResponse(path)
        raise web.HTTPNotFound

    async def _take(self, request: web.Request) -> web.Response:
        """Answers once a copy of the offered checkpoint is here."""
        try:
            offer = Offer.model_validate_json(await request.read())
        except ValidationError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        try:
            await self._keeping.take(offer)
        except Declined as declined:
            raise web.HTTPConflict(text=str(declined)) from declined
        return web.Response()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


def _version(request: web.Request) -> Version:
    try:
        return Version.parse(request.match_info["version"])
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
