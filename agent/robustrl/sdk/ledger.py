"""The training process's calls to the managers: join, batch, commit.

The managers may be away for a while, because a manager restarts alone, and may come back at another address. So each
call is repeated, with bounded and jittered delays and after asking the agent where they are now, until a deadline that
is far longer than such a restart. A refusal is final. A machine that lost its power answers nothing, not even that it
is gone: while a call waits for its answer, the agent is asked whether the managers are elsewhere by now.
"""

from __future__ import annotations

import http.client
import json
import random
import selectors
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from robustrl_api.errors import describe

AWAY_SECONDS = 600.0
CALL_SECONDS = 30.0
CONNECT_SECONDS = 3.0
WATCH_SECONDS = 0.5
LOG_SECONDS = 5.0
RETRY_SECONDS = (0.02, 1.0)
MOST_SHOWN_BYTES = 200
"""Of an answer that is none of the managers'."""


class Fenced(Exception):
    """Another epoch rules: this process belongs to the past and must act no more."""


class LedgerRefused(Exception):
    """The ledger refuses a request that makes no sense to it."""


class Ledger:
    """One kept-alive connection to the managers.

    Args:
        locate: tells the managers' base URL now, or "" while there are none.
    """

    def __init__(self, locate: Callable[[], str], epoch: int) -> None:
        self._locate = locate
        self._epoch = epoch
        self._connection: http.client.HTTPConnection | None = None
        self._address = ""

    def join(self, rank: int, world_size: int, pod: str) -> dict[str, Any]:
        """Enter the epoch. Older epochs are fenced from here on; the answer says where to start."""
        body = {"rank": rank, "world_size": world_size, "pod": pod}
        answer: dict[str, Any] = self._call(f"/v1/epochs/{self._epoch}/join", body)
        return answer

    def roll_back(self, step: int) -> dict[str, Any]:
        """Give up the steps after `step`, of which no checkpoint is left; they are trained again on the same batches.

        Raises:
            LedgerRefused: it is too long ago.
        """
        answer: dict[str, Any] = self._call(f"/v1/epochs/{self._epoch}/rollback", {"step": step})
        return answer

    def batch(self, step: int, rank: int, world_size: int) -> dict[str, Any]:
        """This rank's share of the step's batch; waits until the batch is full."""
        body = {"epoch": self._epoch, "rank": rank, "world_size": world_size, "wait_seconds": 10}
        while True:
            answer = self._call(f"/v1/batches/{step}", body)
            if answer is not None:
                return dict(answer)

    def commit(self, step: int, batch: str, digests: dict[str, str], metrics: dict[str, float]) -> None:
        """Make a step real."""
        body = {"epoch": self._epoch, "batch": batch, "digests": digests, "metrics": metrics}
        self._call(f"/v1/commits/{step}", body)

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        started = logged = time.monotonic()
        delay = RETRY_SECONDS[0]
        while True:
            try:
                status, data = self._once(path, json.dumps(body))
                if status < 500:
                    return _checked(status, json.loads(data) if data else None)
                problem = f"status {status}: {data[:MOST_SHOWN_BYTES].decode(errors='replace').strip()}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem = describe(error)
            self._drop()
            now = time.monotonic()
            if now - started > AWAY_SECONDS:
                raise TimeoutError(f"the managers have been away for {AWAY_SECONDS:.0f} s ({problem})")
            if now - logged > LOG_SECONDS:
                logged = now
                print(f"waiting for the managers for {now - started:.0f} s ({problem})", file=sys.stderr, flush=True)
            time.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, RETRY_SECONDS[1])

    def _once(self, path: str, body: str) -> tuple[int, bytes]:
        connection = self._connected()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        connection.sock.settimeout(CALL_SECONDS)
        self._await_answer(connection)
        response = connection.getresponse()
        return response.status, response.read()

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._address = self._located()
            if not self._address:
                raise OSError("there are no managers now")
            self._connection = http.client.HTTPConnection(self._address, timeout=CONNECT_SECONDS)
        return self._connection

    def _located(self) -> str:
        return urlsplit(self._locate()).netloc

    def _await_answer(self, connection: http.client.HTTPConnection) -> None:
        """Until there is something to read.

        Raises:
            OSError: the managers are elsewhere by now, or there is no answer in time.
        """
        deadline = time.monotonic() + CALL_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(connection.sock, selectors.EVENT_READ)
            while not selector.select(WATCH_SECONDS):
                if self._located() != self._address:
                    raise OSError(f"the managers are not at {self._address} any more")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no answer for {CALL_SECONDS:.0f} s")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _checked(status: int, answer: Any) -> Any:
    """The answer, which may be a refusal.

    Raises:
        ValueError: it is none of the managers', as of whoever has got their address.
    """
    if status < 400 and isinstance(answer, dict | None):
        return answer
    if not isinstance(answer, dict) or "error" not in answer:
        raise ValueError(f"status {status}: {str(answer)[:MOST_SHOWN_BYTES]}")
    reason, message = answer["error"], answer.get("message", "")
    if reason == "Fenced":
        raise Fenced(f"epoch is over: {message}")
    raise LedgerRefused(f"{reason}: {message}")
