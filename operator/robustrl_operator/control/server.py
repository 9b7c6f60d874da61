"""The control endpoint: one long-poll for agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from pydantic import ValidationError

from robustrl_api.control import AgentReport
from robustrl_operator.control.hub import ControlHub, PodIdentity

MAX_REPORT_BYTES = 64 * 1024


class Authenticator(Protocol):
    """Tells whose credential a call carries."""

    async def identify(self, token: str) -> PodIdentity | None:
        """The pod that the token was made for, or None if it is not valid here."""


def control_app(hub: ControlHub, authenticator: Authenticator) -> web.Application:
    """The endpoint as an aiohttp application."""
    app = web.Application(client_max_size=MAX_REPORT_BYTES)
    app.router.add_post("/v1/report", _report(hub, authenticator))
    return app


def _report(hub: ControlHub, authenticator: Authenticator) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        identity = await authenticator.identify(token) if token else None
        if identity is None:
            return _error(401, "Unauthorized", "the token is not valid for this endpoint")
        try:
            report = AgentReport.model_validate_json(await request.read())
        except ValidationError as error:
            return _error(400, "BadReport", str(error))
        if report.pod != identity.pod:
            return _error(403, "WrongPod", f"the token belongs to {identity.pod}, the report to {report.pod}")
        assignment = await hub.exchange(identity, report)
        if assignment is None:
            return _error(404, "UnknownPod", f"{identity.pod} belongs to no job that this operator knows yet")
        return web.Response(body=assignment.model_dump_json(by_alias=True), content_type="application/json")

    return handle


def _error(status: int, reason: str, message: str) -> web.Response:
    return web.json_response({"error": reason, "message": message}, status=status)
