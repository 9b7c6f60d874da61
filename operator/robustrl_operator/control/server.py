"""The control endpoint: one long-poll for the agents in the pods, one short call for those of the nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from pydantic import ValidationError

from robustrl_api.base import ApiModel
from robustrl_api.control import AgentReport
from robustrl_api.node import NodeReport
from robustrl_api.skew import read_message
from robustrl_operator.control.hub import ControlHub, PodIdentity

MAX_REPORT_BYTES = 64 * 1024
MAX_NODE_REPORT_BYTES = 512 * 1024
"""A node of 256 pods and 64 GPUs comes to a third of it."""

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Authenticator(Protocol):
    """Tells whose credential a call carries."""

    async def identify(self, token: str) -> PodIdentity | None:
        """The pod that the token was made for, or None if it is not valid here."""


@dataclass(frozen=True, slots=True)
class NodeAgents:
    """Whose reports about nodes are taken: those of pods under this service account."""

    namespace: str
    account: str


def control_app(
    hub: ControlHub, authenticator: Authenticator, node_agents: NodeAgents | None = None
) -> web.Application:
    """The endpoint as an aiohttp application.

    Args:
        node_agents: None where there are none; then reports about nodes are refused.
    """
    app = web.Application(client_max_size=MAX_REPORT_BYTES)
    app.router.add_post("/v1/report", _report(hub, authenticator))
    app.router.add_post("/v1/node", _node_report(hub, authenticator, node_agents))
    return app


def _report(hub: ControlHub, authenticator: Authenticator) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        identity = await _caller(request, authenticator)
        if identity is None:
            return _unauthorized()
        try:
            report = read_message(AgentReport, await request.read())
        except ValidationError as error:
            return _error(400, "BadReport", str(error))
        if report.pod != identity.pod:
            return _error(403, "WrongPod", f"the token belongs to {identity.pod}, the report to {report.pod}")
        assignment = await hub.exchange(identity, report)
        if assignment is None:
            return _not_here(f"{identity.pod} belongs to no job that this operator knows yet")
        return _answer(assignment)

    return handle


def _node_report(hub: ControlHub, authenticator: Authenticator, node_agents: NodeAgents | None) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        identity = await _caller(request, authenticator)
        if identity is None:
            return _unauthorized()
        if node_agents is None or (identity.namespace, identity.account) != (
            node_agents.namespace,
            node_agents.account,
        ):
            return _error(403, "NoNodeAgent", f"{identity.namespace}/{identity.pod} is not an agent of a node")
        if not identity.node:
            return _error(403, "NoNode", "the token names no node: node agents need Kubernetes 1.30 or newer")
        try:
            body = await request.clone(client_max_size=MAX_NODE_REPORT_BYTES).read()
            report = read_message(NodeReport, body)
        except ValidationError as error:
            return _error(400, "BadReport", str(error))
        if hub.closed:
            return _not_here(f"{identity.node} is another operator's by now")
        if report.node != identity.node:
            return _error(403, "WrongNode", f"the token is bound to {identity.node}, the report is of {report.node}")
        return _answer(hub.nodes.take(report))

    return handle


async def _caller(request: web.Request, authenticator: Authenticator) -> PodIdentity | None:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return await authenticator.identify(token) if token else None


def _answer(message: ApiModel) -> web.Response:
    return web.Response(body=message.model_dump_json(by_alias=True), content_type="application/json")


def _not_here(message: str) -> web.Response:
    """Another operator may lead by now: the connection ends, so that the next call goes to whoever does."""
    response = _error(404, "UnknownPod", message)
    response.force_close()
    return response


def _unauthorized() -> web.Response:
    return _error(401, "Unauthorized", "the token is not valid for this endpoint")


def _error(status: int, reason: str, message: str) -> web.Response:
    return web.json_response({"error": reason, "message": message}, status=status)
