"""Which loopback addresses the pods of a run have: two runs on one machine must not meet on their ports.

A run that came second would talk to the managers of the first, and train on its ledger. A network is held by a socket
with an abstract name: such a name belongs to the same network namespace as the addresses do, and goes with its holder.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

FIRST, LAST = 77, 126


class NoNetwork(Exception):
    """Every network is held by another run."""


@contextlib.contextmanager
def claimed() -> Iterator[str]:
    """The first two numbers of addresses that nobody else uses inside the block.

    Raises:
        NoNetwork: there are none.
    """
    for number in range(FIRST, LAST + 1):
        network = f"127.{number}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
            if _hold(held, network):
                yield network
                return
    raise NoNetwork(f"{LAST + 1 - FIRST} jobs run on this machine already, which is the most")


def _hold(held: socket.socket, network: str) -> bool:
    try:
        held.bind(f"\0robustrl-network-{network}")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
