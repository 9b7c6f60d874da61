"""The agent's calls to the managers. Each has a deadline; a refusal is an answer, not an error to retry."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from robustrl_api.errors import describe

CALL_SECONDS = 5.0


class ManagersAway(Exception):
    """The managers cannot be reached now."""


class ManagersRefused(Exception):
    """The managers refuse: another epoch rules, or the request makes no sense to them."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class ManagersClient:
    """One HTTP session; the base URL may change when the managers move.

    Calls under way are given up then: a machine that lost its power answers nothing, not even that it is gone.
    """

    def __init__(self) -> None:
        self._url = ""
        self._limits: set[asyncio.Timeout] = set()
        self._session = aiohttp.ClientSession()

    @property
    def url(self) -> str:
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        if url != self._url:
            self._url = url
            for limit in self._limits:
                if not limit.expired():
                    limit.reschedule(0.0)

    async def call(self, method: str, path: str, body: object = None, seconds: float = CALL_SECONDS) -> Any:
        """The answer's JSON object; None where the managers had nothing to say (204).

        Raises:
            ManagersAway: no answer in time, or none of the managers'.
            ManagersRefused: a refusal.
        """
        if not self._url:
            raise ManagersAway("no managers are known yet")
        try:
            async with asyncio.timeout(seconds) as limit:
                self._limits.add(limit)
                try:
                    return await self._request(method, self._url + path, body)
                finally:
                    self._limits.discard(limit)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ManagersAway(describe(error)) from error

    async def _request(self, method: str, url: str, body: object) -> Any:
        async with self._session.request(method, url, json=body, timeout=aiohttp.ClientTimeout()) as response:
            if response.status == 204:
                return None
            answer = await response.json()
        if not isinstance(answer, dict):
            raise ValueError(f"HTTP {response.status} with an answer that is none of the managers': {answer!r:.100}")
        if response.status >= 400:
            raise ManagersRefused(str(answer.get("error", response.status)), str(answer.get("message", "")))
        return answer

    async def close(self) -> None:
        await self._session.close()
