"""`robustrl-agent run`: the entry point of every role's container."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import logging
import os
import sys
from typing import NoReturn

_M_ARENA_MAX = -8
# One heap is enough for a process with one busy thread; glibc would give each of UCX's threads its own.
ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)

from pydantic import ValidationError  # noqa: E402

from robustrl.exit_status import BAD_INPUT_STATUS  # noqa: E402
from robustrl.supervisor.agent import Agent, pod_address  # noqa: E402
from robustrl_api.pod_config import POD_CONFIG_ENV, PodConfig  # noqa: E402
from robustrl_api.skew import read_message  # noqa: E402

log = logging.getLogger(__name__)


def main() -> None:
    """Run the agent until it is told to stop."""
    parser = argparse.ArgumentParser(prog="robustrl-agent", description=__doc__)
    parser.add_argument("command", choices=["run"], help="run: supervise this pod's role")
    parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s agent %(levelname)s %(message)s", stream=sys.stderr)
    try:
        config = read_message(PodConfig, os.environ[POD_CONFIG_ENV])
        pod, host = pod_address()
    except KeyError as error:
        sys.exit(_usage(f"{error.args[0]} is not set: the operator sets it in the pods that it creates"))
    except ValidationError as error:
        sys.exit(_usage(f"{POD_CONFIG_ENV} does not fit this version of robustrl: {error}"))
    asyncio.run(_run(config, pod, host))


async def _run(config: PodConfig, pod: str, host: str) -> NoReturn:
    """Exits from within the loop: threads of UCX's, or one that waits for a process or for storage that hangs, would
    keep an agent that has ended, and with it its container, for ever."""
    try:
        await Agent(config, pod, host).run()
        status = 0
    except BaseException:
        log.critical("the agent ends: its container is to begin anew", exc_info=True)
        status = 1
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


def _usage(message: str) -> int:
    print(f"robustrl-agent: {message}", file=sys.stderr)
    return BAD_INPUT_STATUS


if __name__ == "__main__":
    main()
