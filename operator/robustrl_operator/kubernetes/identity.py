"""Who calls: tokens with our audience, reviewed by the API server, remembered for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import httpx2
import xxhash
from lightkube import ApiError, AsyncClient
from lightkube.models.authentication_v1 import TokenReviewSpec
from lightkube.resources.authentication_v1 import TokenReview

from robustrl_api.errors import describe
from robustrl_api.names import CONTROL_AUDIENCE
from robustrl_operator.control.hub import PodIdentity

log = logging.getLogger(__name__)

REMEMBER_SECONDS = 120.0
STALE_SECONDS, AGAIN_SECONDS = 600.0, 10.0
"""An API server that cannot review now must not silence every agent: who was known so lately is still believed, and
asked about again after a while."""
MAX_REMEMBERED = 50_000
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class _Known:
    """Whose a token is; monotonic seconds."""

    identity: PodIdentity
    proved: float
    until: float


class TokenAuthenticator:
    """Asks the API server about each token once in two minutes."""

    def __init__(self, client: AsyncClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: dict[str, _Known] = {}

    async def identify(self, token: str) -> PodIdentity | None:
        """The pod that the token was made for, or None if it is not valid here.

        Raises:
            lightkube.ApiError, httpx2.HTTPError: the API server cannot say, and has not said so lately either.
        """
        key = xxhash.xxh3_128_hexdigest(token.encode())
        known, now = self._known.get(key), self._clock()
        if known is not None and known.until > now:
            return known.identity
        try:
            identity = await self._review(token)
        except (ApiError, httpx2.HTTPError) as error:
            if known is None or now - known.proved > STALE_SECONDS:
                raise
            log.warning("the token of %s cannot be reviewed now: %s", known.identity.pod, describe(error))
            self._known[key] = replace(known, until=now + AGAIN_SECONDS)
            return known.identity
        self._known.pop(key, None)
        if identity is not None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = _Known(identity, now, now + REMEMBER_SECONDS)
        return identity

    async def _review(self, token: str) -> PodIdentity | None:
        spec = TokenReviewSpec(token=token, audiences=[CONTROL_AUDIENCE])
        status = (await self._client.create(TokenReview(spec=spec))).status
        if status is None or not status.authenticated or CONTROL_AUDIENCE not in (status.audiences or []):
            return None
        user = status.user
        extra = (user.extra or {}) if user else {}
        if user is None or _POD_NAME not in extra or _POD_UID not in extra:
            return None
        namespace, _, account = (user.username or "").removeprefix(_ACCOUNT).partition(":")
        node = extra.get(_NODE_NAME) or [""]
        return PodIdentity(namespace, extra[_POD_NAME][0], extra[_POD_UID][0], account, node[0])
