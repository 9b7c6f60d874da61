"""Driving an engine through its HTTP surface: one adapter for the embedded engine and for SGLang.

Every call has a deadline and every answer's body is read: an engine that says 200 and "success: false" has
failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from robustrl_api.errors import describe

PauseMode = Literal["abort", "retract", "in_place"]


class EngineError(Exception):
    """The engine refused, failed, or did not answer in time. The text says which call and why."""


@dataclass(frozen=True)
class EngineCounters:
    """What the throughput rule needs. Compare ``generation_tokens_total`` over time; gauges of rates lie."""

    generation_tokens_total: int
    running: int
    queued: int


@dataclass(frozen=True)
class Deadlines:
    """How long, in seconds, each kind of call may take."""

    control: float = 10.0
    counters: float = 2.0
    """An engine that does not answer stands still, and is to be seen to within any window."""
    weights: float = 300.0


class EngineAdapter:
    """One engine.

    Args:
        url: base URL, e.g. ``http://127.0.0.1:8100``.
        session: shared by the caller, who closes it.
        pause_mode: what becomes of requests in flight while weights change. ``retract`` keeps them and
            recomputes
            their cache under the new weights; ``in_place`` keeps the old cache; ``abort`` returns them
            unfinished.
        deadlines: bounds of each call.
    """

    def __init__(
        self,
        url: str,
        session: aiohttp.ClientSession,
        *,
        pause_mode: PauseMode = "retract",
        deadlines: Deadlines | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._session = session
        self._pause_mode = pause_mode
        self._deadlines = deadlines or Deadlines()

    async def ready(self) -> bool:
        """Whether the engine takes requests now. Green says nothing about a hung scheduler; see
        ``deep_probe``."""
        try:
            status, _ = await self._call("GET", "/ready", self._deadlines.control)
        except EngineError:
            return False
        return status == 200

    async def apply_weights(self, directory: Path | str, version: str) -> None:
        """Load ``directory/*.safetensors`` and label them ``version``, between two tokens of whatever runs.

        Raises:
            EngineError: the engine may hold torn weights; it is left paused, so that it answers no request
                with
                them. Apply again or restart it.
        """
        await self._control("/pause_generation", {"mode": self._pause_mode})
        body = {
            "model_path": str(directory),
            "weight_version": version,
            "abort_all_requests": False,
            # Requests frozen in place keep their cache, and SGLang refuses to flush under them.
            "flush_cache": self._pause_mode != "in_place",
        }
        await self._checked("/update_weights_from_disk", body, self._deadlines.weights)
        await self._confirm(version)
        await self._control("/continue_generation", {})

    async def set_version(self, version: str) -> None:
        """Relabel the weights the engine has, aborting nothing."""
        body = {"new_version": version, "abort_all_requests": False}
        await self._checked("/update_weight_version", body, self._deadlines.control)

    async def version(self) -> str:
        """Label of the weights that are live now."""
        status, text = await self._call("GET", "/model_info", self._deadlines.control)
        return str(self._object("/model_info", status, text).get("weight_version", ""))

    async def deep_probe(self, timeout: float) -> bool:
        """Whether the scheduler answers within ``timeout`` seconds. Costs no generation and works while
        paused."""
        try:
            status, _ = await self._call("GET", "/server_info", timeout)
        except EngineError:
            return False
        return status == 200

    async def counters(self) -> EngineCounters:
        """Progress counters, summed over the engine's ranks."""
        status, text = await self._call("GET", "/metrics", self._deadlines.counters)
        if status != 200:
            raise EngineError(f"{self._url}/metrics: HTTP {status}")
        try:
            totals = _totals(text)
            return EngineCounters(
                generation_tokens_total=int(totals.get("sglang:generation_tokens_total", 0)),
                running=int(totals.get("sglang:num_running_reqs", 0)),
                queued=int(totals.get("sglang:num_queue_reqs", 0)),
            )
        except Exception as error:  # its parser has no error of its own: noise ends it by whatever comes first
            raise EngineError(f"{self._url}/metrics: not a Prometheus exposition: {error!r}") from error

    async def _confirm(self, version: str) -> None:
        live = await self.version()
        if live != version:
            raise EngineError(f"{self._url}: the weights were loaded as {version!r} but the engine reports {live!r}")

    async def _control(self, path: str, body: Mapping[str, Any]) -> None:
        status, text = await self._call("POST", path, self._deadlines.control, body)
        if status != 200:
            raise EngineError(f"{self._url}{path}: HTTP {status}: {text[:500]}")

    async def _checked(self, path: str, body: Mapping[str, Any], timeout: float) -> None:
        status, text = await self._call("POST", path, timeout, body)
        answer = self._object(path, status, text)
        if answer.get("success") is not True:
            raise EngineError(f"{self._url}{path}: refused: {answer.get('message', text[:500])}")

    def _object(self, path: str, status: int, text: str) -> dict[str, Any]:
        """The JSON object of an answer. A refusal (4xx) may carry one too, and then its message is worth
        more."""
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or (status != 200 and "success" not in answer):
            raise EngineError(f"{self._url}{path}: HTTP {status}: {text[:500]}")
        return answer

    async def _call(
        self, method: str, path: str, timeout: float, body: Mapping[str, Any] | None = None
    ) -> tuple[int, str]:
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._session.request(method, self._url + path, json=body, timeout=limit) as response:
                return response.status, await response.text()
        except TimeoutError as error:
            raise EngineError(f"{self._url}{path}: no answer within {timeout:g} s") from error
        # A connection that ends, bytes that are no text, a session that whoever stops the engine has closed.
        except (aiohttp.ClientError, ValueError, RuntimeError) as error:
            raise EngineError(f"{self._url}{path}: {describe(error)}") from error


def _totals(exposition: str) -> dict[str, float]:
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals
