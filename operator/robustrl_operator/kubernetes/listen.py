"""An aiohttp application on a port, with TLS or without."""

from __future__ import annotations

from aiohttp import web

from robustrl_operator.kubernetes.certificates import Certificates


async def listen(app: web.Application, port: int, pair: Certificates | None = None) -> web.AppRunner:
    """Serve until the runner that is returned is cleaned up, which waits a second at most for calls under way."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=pair.context() if pair else None).start()
    return runner
