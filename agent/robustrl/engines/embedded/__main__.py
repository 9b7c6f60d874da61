"""``python -m robustrl.engines.embedded --model sort4.model:build_model --port 8100``.

``main`` may also be called in a process forked from an interpreter that has imported torch already:
importing this module starts no thread, and everything begins inside ``main``.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import uvloop
from aiohttp import web

if TYPE_CHECKING:
    import torch

from robustrl.exit_status import BAD_INPUT_STATUS

log = logging.getLogger("robustrl.engines.embedded")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal ends the process."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # An engine holds nothing worth a goodbye, and a default handler works in every state the interpreter
    # can be in.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        model = _model(arguments.model)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        print(f"--model {arguments.model}: {error}", file=sys.stderr)
        return BAD_INPUT_STATUS
    uvloop.run(_serve(arguments, model))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="robustrl.engines.embedded", description=__doc__)
    parser.add_argument("--model", required=True, help="module:factory of a causal nn.Module")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--weight-version", default="", help="label of the initial weights")
    parser.add_argument("--max-running-requests", type=int, default=256)
    parser.add_argument("--health-timeout-seconds", type=float, default=20.0)
    parser.add_argument("--enable-deterministic-inference", action="store_true")
    return parser.parse_args(argv)


def _model(reference: str) -> torch.nn.Module:
    module_name, _, factory_name = reference.partition(":")
    if not module_name or not factory_name:
        raise ValueError("expected module:factory")
    model: torch.nn.Module = getattr(importlib.import_module(module_name), factory_name)()
    return model


async def _serve(arguments: argparse.Namespace, model: torch.nn.Module) -> None:
    import torch

    from robustrl.engines.embedded.scheduler import Scheduler
    from robustrl.engines.embedded.server import EngineServer

    torch.set_num_threads(1)
    with torch.inference_mode():
        vocab_size = int(model(torch.zeros(1, 1, dtype=torch.long)).shape[-1])
    scheduler = Scheduler(
        model,
        version=arguments.weight_version,
        max_running=arguments.max_running_requests,
        deterministic=arguments.enable_deterministic_inference,
        on_death=lambda: os._exit(1),  # as SGLang: no server without its scheduler
    )
    scheduler.start()
    server = EngineServer(
        scheduler,
        vocab_size=vocab_size,
        model_name=arguments.model,
        health_timeout_seconds=arguments.health_timeout_seconds,
    )
    # A client that disconnects cancels its handler, which aborts its request.
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, arguments.host, arguments.port).start()
    log.info("serving %s on %s:%d", arguments.model, arguments.host, arguments.port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
