"""Asking an engine for tokens: SGLang's /generate, with a deadline, and nothing taken on trust."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from robustrl_api.errors import describe


class EngineFailure(Exception):
    """The engine did not give a usable answer. Another one, or the same one later, may."""


class RequestRejected(Exception):
    """The engine says that the request itself is wrong (as by HTTP 400): no other engine would take it."""


@dataclass(frozen=True)
class TurnRequest:
    """What the next turn continues from and how it is drawn. ``rid`` names it in the engine's logs."""

    rid: str
    tokens: list[int]
    sampling: dict[str, Any]


@dataclass(frozen=True)
class EngineAnswer:
    """Generated tokens, their log-probabilities, and every version of the weights that drew one of them."""

    tokens: list[int]
    logprobs: list[float]
    versions: list[str]
    finish_reason: str
    text: str = ""


REJECTIONS = frozenset({400, 413, 422})
"""Not valid, too long, not as the surface has it. Other statuses say nothing of the request."""
MAX_REFUSAL_BYTES = 300
"""Of an answer that is no answer; it goes into a log line."""


class EngineClient(Protocol):
    """How the managers reach engines; tests put their own in its place."""

    async def generate(self, url: str, request: TurnRequest, timeout_seconds: float) -> EngineAnswer: ...


class HttpEngineClient:
    """The real one, over a shared session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def generate(self, url: str, request: TurnRequest, timeout_seconds: float) -> EngineAnswer:
        body = {
            "input_ids": request.tokens,
            "sampling_params": request.sampling,
            "return_logprob": True,
            "rid": request.rid,
        }
        try:
            status, answer = await self._post(f"{url}/generate", body, timeout_seconds)
        except TimeoutError as error:
            raise EngineFailure(f"{url}: no answer within {timeout_seconds:g} s") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise EngineFailure(f"{url}: {describe(error)}") from error
        if status in REJECTIONS:
            raise RequestRejected(f"HTTP {status}: {answer}")
        if status != 200:
            raise EngineFailure(f"{url}: HTTP {status}: {answer}")
        return _parse(url, answer)

    async def _post(self, url: str, body: dict[str, Any], timeout_seconds: float) -> tuple[int, Any]:
        limit = aiohttp.ClientTimeout(total=timeout_seconds)
        async with self._session.post(url, json=body, timeout=limit) as response:
            if response.status == 200:
                return response.status, await response.json()
            # An engine that dies mid-way may answer 5xx with any content.
            return response.status, (await response.content.read(MAX_REFUSAL_BYTES)).decode(errors="replace")


def _parse(url: str, answer: Any) -> EngineAnswer:
    try:
        meta = answer["meta_info"]
        tokens = [int(token) for token in answer["output_ids"]]
        logprobs = [float(row[0]) for row in meta["output_token_logprobs"]]
        spans = meta.get("weight_versions") or [{"version": meta["weight_version"]}]
        versions = [str(span["version"]) for span in spans]
        reason = str(meta["finish_reason"]["type"])
        text = str(answer.get("text") or "")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise EngineFailure(f"{url}: an answer without {error}") from error
    if not all(map(math.isfinite, logprobs)):
        raise EngineFailure(f"{url}: a log-probability that is no number")
    if len(logprobs) != len(tokens):
        raise EngineFailure(f"{url}: {len(tokens)} tokens with {len(logprobs)} log-probabilities")
    return EngineAnswer(tokens, logprobs, versions, reason, text)
