"""An engine as SGLang's is: a process that answers HTTP, and another behind it that does the work.

The front passes calls on. What it knows by itself it answers by itself, and as it was when it was last heard: that it
is ready, and its metrics. So with the process behind it stopped it looks healthy, and its counters stand still.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable

import aiohttp
from aiohttp import web

from robustrl.supervisor.process import die_with_parent

OWN = ("/ready", "/health", "/metrics")
REFRESH_SECONDS = 0.1


class Front:
    def __init__(self, behind: str) -> None:
        self._behind = behind
        self._known: dict[str, Callable[[], web.Response]] = {}

    async def run(self, host: str, port: int) -> None:
        async with aiohttp.ClientSession() as self._calls:
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", self._serve)
            runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, host, port).start()
            while True:
                for path in OWN:
                    await self._refresh(path)
                await asyncio.sleep(REFRESH_SECONDS)

    async def _refresh(self, path: str) -> None:
        try:
            async with self._calls.get(self._behind + path) as answer:
                self._known[path] = await _copy(answer)
        except aiohttp.ClientError:
            self._known.pop(path, None)

    async def _serve(self, request: web.Request) -> web.Response:
        if request.path in OWN:
            known = self._known.get(request.path)
            return known() if known else web.Response(status=503)
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with self._calls.request(
            request.method, self._behind + request.path_qs, data=await request.read(), headers=headers
        ) as answer:
            return (await _copy(answer))()


async def _copy(answer: aiohttp.ClientResponse) -> Callable[[], web.Response]:
    """An answer that can be given again and again."""
    body, kind = await answer.read(), answer.headers.get("Content-Type", "application/json")
    return lambda: web.Response(body=body, status=answer.status, headers={"Content-Type": kind})


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    port = given.port + 1
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "robustrl.engines.embedded", "--model", given.model, "--host", given.host,
        "--port", str(port), preexec_fn=die_with_parent,
    )  # fmt: skip
    front = asyncio.create_task(Front(f"http://{given.host}:{port}").run(given.host, given.port))
    await asyncio.wait({front, asyncio.create_task(engine.wait())}, return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    asyncio.run(main())
