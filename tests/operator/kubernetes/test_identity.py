"""What a reviewed token proves."""

from __future__ import annotations

from typing import Any, cast

import httpx2
import pytest
from lightkube.models.authentication_v1 import TokenReviewStatus, UserInfo
from lightkube.resources.authentication_v1 import TokenReview

from robustrl_api.names import CONTROL_AUDIENCE
from robustrl_operator.control.hub import PodIdentity
from robustrl_operator.kubernetes.identity import REMEMBER_SECONDS, STALE_SECONDS, TokenAuthenticator

POD = {"authentication.kubernetes.io/pod-name": ["p-1"], "authentication.kubernetes.io/pod-uid": ["u-1"]}
NODE = {"authentication.kubernetes.io/node-name": ["n-1"], "authentication.kubernetes.io/node-uid": ["x"]}
ACCOUNT = "system:serviceaccount:robustrl-system:robustrl-node-agent"


class ApiServer:
    """Answers every review alike."""

    def __init__(self, status: TokenReviewStatus | None) -> None:
        self.status, self.asked = status, []

    async def create(self, review: TokenReview) -> TokenReview:
        self.asked.append(review)
        return TokenReview(spec=review.spec, status=self.status)


def good(**fields: Any) -> TokenReviewStatus:
    user = UserInfo(username=ACCOUNT, extra=fields.pop("extra", POD | NODE))
    return TokenReviewStatus(**{"authenticated": True, "audiences": [CONTROL_AUDIENCE], "user": user, **fields})


@pytest.mark.parametrize(
    ("status", "identity"),
    [
        (good(), PodIdentity("robustrl-system", "p-1", "u-1", "robustrl-node-agent", "n-1")),
        (good(extra=POD), PodIdentity("robustrl-system", "p-1", "u-1", "robustrl-node-agent", "")),
        (good(extra=NODE), None),
        (good(extra=None), None),
        (good(authenticated=False), None),
        (good(audiences=["https://kubernetes.default.svc"]), None),
        (good(user=None), None),
        (None, None),
    ],
    ids=["bound to a pod and its node", "before Kubernetes 1.30", "of no pod", "of nothing", "not authenticated",
         "for somebody else", "of nobody", "no answer"],
)  # fmt: skip
async def test_identity(status: TokenReviewStatus | None, identity: PodIdentity | None) -> None:
    server = ApiServer(status)
    authenticator = TokenAuthenticator(cast(Any, server))
    assert [await authenticator.identify("t"), await authenticator.identify("t")] == [identity] * 2
    assert len(server.asked) == (1 if identity else 2), "only who is known is remembered"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_who_was_known_lately_is_believed_while_the_api_server_cannot_review() -> None:
    """All agents' calls failed as soon as their tokens had to be reviewed again."""

    class Busy(ApiServer):
        busy = False

        async def create(self, review: TokenReview) -> TokenReview:
            answer = await super().create(review)
            if self.busy:
                raise httpx2.ReadTimeout("busy")
            return answer

    server, clock = Busy(good()), Clock()
    authenticator = TokenAuthenticator(cast(Any, server), clock)
    known = await authenticator.identify("t")
    server.busy = True
    clock.now += REMEMBER_SECONDS + 1
    assert [await authenticator.identify("t"), await authenticator.identify("t")] == [known] * 2
    assert len(server.asked) == 2, "a busy server is not asked at every call"
    with pytest.raises(httpx2.ReadTimeout):
        await authenticator.identify("another")
    clock.now += STALE_SECONDS
    with pytest.raises(httpx2.ReadTimeout):
        await authenticator.identify("t")


async def test_a_token_that_is_refused_is_forgotten() -> None:
    server, clock = ApiServer(good()), Clock()
    authenticator = TokenAuthenticator(cast(Any, server), clock)
    assert await authenticator.identify("t")
    server.status = good(authenticated=False)
    clock.now += REMEMBER_SECONDS + 1
    assert await authenticator.identify("t") is None
