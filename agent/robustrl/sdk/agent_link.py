"""The training process's line to its agent."""

from __future__ import annotations

import json
import socket
from typing import Any


class AgentLink:
    """A unix socket with one JSON object a line. Statements get no answer; questions do.

    An answer may take as long as it takes to read a checkpoint from slow storage, which the phase's lease limits. An
    agent that ends takes this process with it, and one that hangs is found by its silence.

    Args:
        local_rank: which of the pod's training processes this is; the phase of the first is the pod's.
    """

    def __init__(self, path: str, local_rank: int) -> None:
        self._local_rank = local_rank
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = self._socket.makefile("r")

    def tell(self, operation: str, **fields: Any) -> None:
        """Say something to the agent."""
        self._socket.sendall(json.dumps({"op": operation, **fields}).encode() + b"\n")

    def enter(self, phase: str) -> None:
        """Say what this process does from now on; "" is nothing in particular."""
        if self._local_rank == 0:
            self.tell("phase", phase=phase)

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Ask the agent for something.

        Raises:
            RuntimeError: the agent says that it cannot be had.
        """
        self.tell(operation, **fields)
        answer: dict[str, Any] = json.loads(self._reader.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer
