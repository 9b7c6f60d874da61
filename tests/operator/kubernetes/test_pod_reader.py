"""What is read out of the API server's pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.operator.build import job

from robustrl_api.job import ObjectMeta, RLJob
from robustrl_api.names import Role
from robustrl_operator.kubernetes.pod_factory import build_pod
from robustrl_operator.kubernetes.pod_reader import read_node, read_pod
from robustrl_operator.plan import CreatePod

STARTED, ENDED, AGAIN = (f"2026-01-01T00:00:0{second}Z" for second in (1, 5, 7))
RUNNING, RUNS_AGAIN = {"running": {"startedAt": STARTED}}, {"running": {"startedAt": AGAIN}}
DEAD = {"terminated": {"exitCode": 137, "reason": "Error", "startedAt": STARTED, "finishedAt": ENDED}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    """With a sidecar, whose status comes first: the kubelet sorts them by name."""
    sidecar = {"name": "a-sidecar", "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}}
    return {
        "metadata": {"name": "j-rollout-1", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main"}, {"name": "a-sidecar"}]},
        "status": {"phase": "Running", "containerStatuses": [sidecar, *containers]},
    }


@pytest.mark.parametrize(
    ("status", "second"),
    [
        ({"state": RUNNING}, 1),
        ({"state": DEAD}, 5),
        ({"state": BACK_OFF, "lastState": DEAD}, 5),
        ({"state": RUNS_AGAIN, "lastState": DEAD}, 7),
    ],
)
def test_when_the_container_of_the_agent_changed(status: dict[str, Any], second: int) -> None:
    changed = read_pod(pod({"name": "main", **status})).container_changed
    assert changed == datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


@pytest.mark.parametrize("containers", [(), ({"name": "main"},), ({"name": "main", "state": BACK_OFF},)])
def test_a_container_that_never_started(containers: tuple[dict[str, Any], ...]) -> None:
    assert read_pod(pod(*containers)).container_changed is None
    assert read_pod(pod(*containers)).ended == ""


def test_why_the_container_of_the_agent_ended_the_last_time() -> None:
    dead = {"terminated": {**DEAD["terminated"], "reason": "OOMKilled"}}
    assert read_pod(pod({"name": "main", "state": RUNS_AGAIN, "lastState": dead})).ended == "OOMKilled"


@pytest.mark.parametrize("nodes", [(), ("n2",), ("n2", "n7")])
def test_which_nodes_it_is_kept_off(nodes: tuple[str, ...]) -> None:
    wanted = CreatePod("j-rollout-1", Role.ROLLOUT, avoid_nodes=nodes)
    made = build_pod(RLJob(metadata=ObjectMeta(name="j"), spec=job()), wanted, "https://operator")
    made["metadata"]["uid"] = "u"
    assert read_pod(made).kept_off == nodes


def test_an_image_that_is_gone_on_purpose_is_of_a_registry_that_there_cannot_be() -> None:
    made = [
        build_pod(
            RLJob(metadata=ObjectMeta(name="j"), spec=job()),
            CreatePod("j-rollout-1", Role.ROLLOUT, pullable=pullable),
            "https://operator",
        )["spec"]["containers"][0]["image"]
        for pullable in (True, False)
    ]
    assert made[0] == job().trainer.template.spec.containers[0].image
    assert made[1].split("/")[0].endswith(".invalid")


@pytest.mark.parametrize(
    ("labels", "origin", "role"),
    [
        ({"origin-role": "rollout", "role": "trainer"}, Role.ROLLOUT, Role.TRAINER),
        ({"origin-role": "rollout", "role": "debug"}, Role.ROLLOUT, Role.ROLLOUT),
        ({"origin-role": "", "role": ""}, Role.SERVICE, Role.SERVICE),
        ({}, Role.SERVICE, Role.SERVICE),
    ],
)
def test_a_label_that_somebody_changed_keeps_no_job_from_being_looked_after(
    labels: dict[str, str], origin: Role, role: Role
) -> None:
    labelled = pod()
    labelled["metadata"]["labels"] = {f"robustrl.dev/{name}": value for name, value in labels.items()}
    assert (read_pod(labelled).origin, read_pod(labelled).role) == (origin, role)


TAINT = {"key": "pool", "value": "gpu", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("taint", "toleration", "called_back"),
    [
        pytest.param(TAINT, None, True, id="not tolerated"),
        pytest.param(TAINT, {"key": "pool", "value": "gpu"}, False, id="a pool set apart for such pods"),
        pytest.param(TAINT, {"key": "pool", "operator": "Exists", "effect": "NoExecute"}, False, id="whatever value"),
        pytest.param(TAINT, {"operator": "Exists"}, False, id="everything is tolerated"),
        pytest.param(TAINT, {"key": "pool", "value": "cpu"}, True, id="another value"),
        pytest.param(TAINT, {"key": "other", "operator": "Exists"}, True, id="another key"),
        pytest.param(TAINT, {"key": "pool", "operator": "Exists", "effect": "NoSchedule"}, True, id="another effect"),
        pytest.param(TAINT, {"operator": "Exists", "tolerationSeconds": 60}, True, id="tolerated for a while"),
        pytest.param({**TAINT, "effect": "NoSchedule"}, None, False, id="keeps others out only"),
        pytest.param({**TAINT, "key": "node.kubernetes.io/unreachable"}, None, False, id="it may come back"),
    ],
)
def test_whom_a_taint_ends(taint: dict[str, str], toleration: dict[str, Any] | None, called_back: bool) -> None:
    tolerating = pod()
    tolerating["spec"]["tolerations"] = [toleration] if toleration else []
    assert read_pod(tolerating, [taint]).called_back is called_back


@pytest.mark.parametrize(
    ("key", "leaves"), [("cloud.google.com/impending-node-termination", True), ("karpenter.sh/disrupted", True),
                        ("pool", False)],
)  # fmt: skip
def test_which_nodes_are_about_to_go(key: str, leaves: bool) -> None:
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{**TAINT, "key": key}]}}
    assert read_node(node).leaving is leaves


def test_when_a_node_last_said_how_it_is() -> None:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": STARTED}
    node = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, ready]}}
    assert (read_node(node).ready, read_node(node).heard) == (True, datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert (read_node({"metadata": {"name": "n"}}).ready, read_node({"metadata": {"name": "n"}}).heard) == (False, None)
