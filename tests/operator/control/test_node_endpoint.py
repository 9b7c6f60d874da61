"""Who may report about a node, about which, and how much."""

from __future__ import annotations

import json

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.operator.build import NOW

from robustrl_api.control import AgentReport
from robustrl_api.names import Role
from robustrl_api.node import NodeAssignment, NodeReport, PodReading, Source
from robustrl_operator.control.hub import ControlHub, PodIdentity
from robustrl_operator.control.node_hub import Placed
from robustrl_operator.control.server import MAX_NODE_REPORT_BYTES, MAX_REPORT_BYTES, NodeAgents, control_app

OWN = NodeAgents("robustrl-system", "robustrl-node-agent")
CALLERS = {
    "agent": PodIdentity("robustrl-system", "node-agent-x", "u1", "robustrl-node-agent", "n1"),
    "job": PodIdentity("rl", "j-trainer-1", "u2", "default", "n1"),
    "namesake": PodIdentity("rl", "evil", "u3", "robustrl-node-agent", "n1"),
    "neighbour": PodIdentity("robustrl-system", "operator", "u4", "robustrl-operator", "n1"),
    "unbound": PodIdentity("robustrl-system", "node-agent-y", "u5", "robustrl-node-agent"),
}
REPORT = NodeReport(node="n1", pods=(PodReading(uid="uid-a", source=Source.GPU, idle_seconds=9),))
AGENT_REPORT = AgentReport(pod="j-trainer-1", boot="b", role=Role.TRAINER)
BODY = REPORT.model_dump_json(by_alias=True)


class Callers:
    async def identify(self, token: str) -> PodIdentity | None:
        return CALLERS.get(token)


def hub() -> ControlHub:
    hub = ControlHub(lambda: NOW, lambda _: None)
    hub.nodes.watch("rl/j", {"uid-a": Placed("uid-a", "rl", "a", "n1")})
    return hub


async def post(hub: ControlHub, token: str, body: str, agents: NodeAgents | None = OWN) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        TestClient(TestServer(control_app(hub, Callers(), agents))) as client,
        client.post("/v1/node", data=body, headers=headers) as response,
    ):
        return response.status, await response.text()


async def test_a_nodes_report_is_taken_and_answered_with_its_pods() -> None:
    desk = hub()
    status, text = await post(desk, "agent", BODY)
    assert status == 200
    assert [pod.uid for pod in NodeAssignment.model_validate_json(text).pods] == ["uid-a"]
    observed = desk.nodes.observed("uid-a")
    assert observed is not None
    assert observed.reading.idle_seconds == 9


@pytest.mark.parametrize(
    ("token", "body", "status", "reason"),
    [
        ("", BODY, 401, "Unauthorized"),
        ("forged", BODY, 401, "Unauthorized"),
        ("job", BODY, 403, "NoNodeAgent"),
        ("namesake", BODY, 403, "NoNodeAgent"),
        ("neighbour", BODY, 403, "NoNodeAgent"),
        ("unbound", BODY, 403, "NoNode"),
        ("agent", BODY.replace('"n1"', '"n2"'), 403, "WrongNode"),
        ("agent", "", 400, "BadReport"),
        ("agent", "[]", 400, "BadReport"),
        ("agent", '{"node": "n1", "pods": [{"uid": "uid-a"}]}', 400, "BadReport"),
        ("agent", BODY.replace("9.0", "-9.0"), 400, "BadReport"),
        ("agent", BODY.replace("9.0", '"x"'), 400, "BadReport"),
        ("agent", json.dumps({"node": "n1", "pods": [{"uid": "u", "source": "Gpu"}] * 257}), 400, "BadReport"),
    ],
)
async def test_what_is_refused(token: str, body: str, status: int, reason: str) -> None:
    desk = hub()
    got, text = await post(desk, token, body)
    assert (got, json.loads(text)["error"]) == (status, reason)
    assert desk.nodes.observed("uid-a") is None


async def test_without_node_agents_nobody_is_one() -> None:
    status, text = await post(hub(), "agent", BODY, None)
    assert (status, json.loads(text)["error"]) == (403, "NoNodeAgent")


async def test_the_size_of_a_report_is_limited() -> None:
    body = NodeReport(
        node="n1", pods=tuple(PodReading(uid=f"{n:036}", source=Source.CPU, idle_text="x" * 400) for n in range(256))
    ).model_dump_json(by_alias=True)
    assert MAX_REPORT_BYTES < len(body) < MAX_NODE_REPORT_BYTES
    assert (await post(hub(), "agent", body))[0] == 200
    assert (await post(hub(), "agent", body + " " * MAX_NODE_REPORT_BYTES))[0] == 413


@pytest.mark.parametrize(
    ("path", "token", "body"),
    [
        ("/v1/node", "agent", BODY),
        ("/v1/report", "job", AGENT_REPORT.model_dump_json(by_alias=True)),
    ],
)
async def test_who_leads_no_more_sends_agents_away(path: str, token: str, body: str) -> None:
    """Over a connection that is kept an agent would go on talking to an operator that follows."""
    desk = hub()
    desk.close()
    async with (
        TestClient(TestServer(control_app(desk, Callers(), OWN))) as client,
        client.post(path, data=body, headers={"Authorization": f"Bearer {token}"}) as response,
    ):
        assert (response.status, response.headers.get("Connection")) == (404, "close")
