"""The managers' process, configured by the JSON in ``ROBUSTRL_MANAGER_CONFIG``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import aiohttp
import uvloop
from aiohttp import web

from robustrl.exit_status import BAD_INPUT_STATUS
from robustrl.managers import config as configuration
from robustrl.managers.agent_worker import UserFunctions, load_functions
from robustrl.managers.config import ConfigError, ManagerConfig
from robustrl.managers.engine_client import HttpEngineClient
from robustrl.managers.ledger import CannotOpen
from robustrl.managers.managers import Managers
from robustrl.managers.request_manager import RolloutsFail
from robustrl.managers.server import Server
from robustrl_api.pod_config import MANAGER_CONFIG_ENV

log = logging.getLogger("robustrl.managers")


def main() -> int:
    """Run until SIGTERM or SIGINT. Everything acknowledged is in the ledger at any time, so ending is just
    ending."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = configuration.parse(os.environ.get(MANAGER_CONFIG_ENV, ""))
        uvloop.run(_serve(config, load_functions(config)))
    except (ConfigError, RolloutsFail) as error:
        print(f"robustrl.managers: {error}", file=sys.stderr)
        return BAD_INPUT_STATUS
    except CannotOpen as error:
        print(f"robustrl.managers: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(config: ManagerConfig, functions: UserFunctions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        managers = Managers(config, functions, HttpEngineClient(session))
        await managers.load()
        # No cancellation of handlers: a caller that hangs up must not stop a commit between ledger and memory.
        runner = web.AppRunner(Server(managers).app(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, config.host, config.port).start()
        log.info("serving on %s:%d, next step %d", config.host, config.port, managers.requests.next_step)
        try:
            await _until(stop, managers)
        finally:
            await runner.cleanup()
            await managers.close()


async def _until(stop: asyncio.Event, managers: Managers) -> None:
    """Run the managers until they fail or are told to stop."""
    stopping = asyncio.create_task(stop.wait())
    running = asyncio.create_task(managers.run())
    await asyncio.wait([stopping, running], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if running.done():
        running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
