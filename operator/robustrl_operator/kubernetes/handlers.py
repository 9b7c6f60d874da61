"""kopf's part: it sees RLJobs and says so. It decides nothing and keeps no state on the objects."""

from __future__ import annotations

from typing import Any

import kopf

from robustrl_api.names import GROUP, PLURAL, VERSION
from robustrl_operator.kubernetes.jobs import Jobs

REQUEST_SECONDS = 10


def registry(jobs: Jobs) -> kopf.OperatorRegistry:
    """The handlers, bound to the jobs that they wake."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)  # type: ignore[untyped-decorator]
    def login(**kwargs: Any) -> Any:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)  # type: ignore[untyped-decorator]
    async def changed(event: Any, body: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            jobs.gone(dict(body))
        else:
            jobs.seen(dict(body))

    return handlers


def settings() -> kopf.OperatorSettings:
    """No peering with strangers, no long waits, and a watch that does not go silent for ever."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True
    # kopf would kill the process so many seconds after it was ended, and this operator goes on as a follower.
    chosen.process.ultimate_exiting_timeout = None
    chosen.posting.enabled = False
    chosen.networking.request_timeout = REQUEST_SECONDS
    chosen.networking.connect_timeout = 5
    chosen.watching.server_timeout = 60
    chosen.watching.client_timeout = 75
    return chosen
