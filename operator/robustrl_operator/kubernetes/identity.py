"""Who calls: tokens with our audience, reviewed by the API server, remembered for a while."""

from __future__ import annotations

import logging
import time

import xxhash
from lightkube import AsyncClient
from lightkube.models.authentication_v1 import TokenReviewSpec
from lightkube.resources.authentication_v1 import TokenReview

from robustrl_api.names import CONTROL_AUDIENCE
from robustrl_operator.control.hub import PodIdentity

log = logging.getLogger(__name__)

REMEMBER_SECONDS = 120.0
MAX_REMEMBERED = 50_000
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_ACCOUNT = "system:serviceaccount:"


class TokenAuthenticator:
    """Asks the API server about each token once in two minutes."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._known: dict[str, tuple[float, PodIdentity]] = {}

    async def identify(self, token: str) -> PodIdentity | None:
        """The pod that the token was made for, or None if it is not valid here."""
        key = xxhash.xxh3_128_hexdigest(token.encode())
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        identity = await self._review(token)
        if identity is not None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = (time.monotonic() + REMEMBER_SECONDS, identity)
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
