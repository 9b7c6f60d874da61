"""Who takes part in a swarm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A holder of chunks.

    Args:
        name: unique; over UCX the address it serves at.
        host: the machine it runs on. Peers on one machine are asked first.
        publisher: whether it is where the version comes from, and is asked last.
    """

    name: str
    host: str = ""
    publisher: bool = False
