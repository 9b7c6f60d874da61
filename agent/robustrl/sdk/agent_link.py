"""The training process's line to its agent."""

from __future__ import annotations

import json
import socket
from typing import Any

ANSWER_SECONDS = 600.0
"""The longest answer is a checkpoint fetched from storage."""


class AgentLink:
    """A unix socket with one JSON object a line. Statements get no answer; questions do."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.connect(path)
        self._reader = self._socket.makefile("r")

    def tell(self, operation: str, **fields: Any) -> None:
        """Say something to the agent."""
        self._socket.sendall(json.dumps({"op": operation, **fields}).encode() + b"\n")

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
