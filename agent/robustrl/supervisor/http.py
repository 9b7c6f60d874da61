"""The agent's own endpoint: answers probes, and hands checkpoints in memory to peers."""

from __future__ import annotations

from aiohttp import web

from robustrl.checkpoint.folder import BadCopy, read_manifest
from robustrl.checkpoint.shelf import Shelf
from robustrl.supervisor.state import PodState
from robustrl_api.version import Version


class AgentEndpoint:
    """An aiohttp server on the pod's address."""

    def __init__(self, state: PodState, shelf: Shelf, host: str, port: int) -> None:
        self._state, self._shelf, self._host, self._port = state, shelf, host, port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/checkpoints/{version}", self._roots)
        app.router.add_get("/checkpoints/{version}/{rank}/{file}", self._file)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"pod": self._state.pod, "boot": self._state.boot})

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

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


def _version(request: web.Request) -> Version:
    try:
        return Version.parse(request.match_info["version"])
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
