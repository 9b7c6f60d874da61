"""The agent's calls to the managers. Each has a deadline; a refusal is an answer, not an error to retry."""

from __future__ import annotations

from typing import Any

import aiohttp

CALL_SECONDS = 5.0


class ManagersAway(Exception):
    """The managers cannot be reached now."""


class ManagersRefused(Exception):
    """The managers refuse: another epoch rules, or the request makes no sense to them."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class ManagersClient:
    """One HTTP session; the base URL may change when the managers move."""

    def __init__(self) -> None:
        self.url = ""
        self._session = aiohttp.ClientSession()

    async def call(self, method: str, path: str, body: object = None, seconds: float = CALL_SECONDS) -> Any:
        """The answer's JSON; None where the managers had nothing to say (204).

        Raises:
            ManagersAway: no answer in time.
            ManagersRefused: a refusal.
        """
        if not self.url:
            raise ManagersAway("no managers are known yet")
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(method, self.url + path, json=body, timeout=timeout) as response:
                if response.status == 204:
                    return None
                answer = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ManagersAway(str(error) or type(error).__name__) from error
        if response.status >= 400:
            raise ManagersRefused(answer.get("error", str(response.status)), answer.get("message", ""))
        return answer

    async def close(self) -> None:
        await self._session.close()
