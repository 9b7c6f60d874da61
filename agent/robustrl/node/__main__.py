"""`robustrl-node-agent`: watches one node's GPUs and pods, and tells the operator."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys

from robustrl.exit_status import BAD_INPUT_STATUS
from robustrl.node.agent import NodeAgent
from robustrl.node.settings import BadSettings, Settings


def main() -> None:
    """Run until SIGTERM, or until a part of the agent fails."""
    argparse.ArgumentParser(prog="robustrl-node-agent", description=__doc__).parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s node %(levelname)s %(message)s", stream=sys.stderr)
    try:
        settings = Settings.from_environment(os.environ)
    except BadSettings as error:
        print(f"robustrl-node-agent: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT_STATUS)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    running = asyncio.create_task(NodeAgent(settings).run(), name="node-agent")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


if __name__ == "__main__":
    main()
