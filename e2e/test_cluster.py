"""The development cluster itself, on a small one of its own beside any other that runs.

The tests are the life of one cluster and run in this order: start, use, faults, end.
"""

from __future__ import annotations

import os
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from robustrl_e2e import cluster as devcluster
from robustrl_e2e.cluster import Api, Cluster, binaries, cgroups, kernel, mounts, native, network, node, state
from robustrl_e2e.cluster.api import node_is_ready

NAME = "robustrl-test"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
TAG = "robustrl.dev/greeter:1"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster without Docker needs root"),
]

DOCKERFILE = """\
ARG BASE
FROM ${BASE}
RUN --mount=type=bind,source=wheels,target=/wheels pip install --no-index --find-links /wheels greeter
CMD ["python3", "-m", "greeter"]
"""
GREETER = """\
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from " + os.uname().nodename.encode())

print("greeting", flush=True)
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""


@dataclass(frozen=True)
class Box:
    """What a cluster could leave behind. What other clusters own is left out: they may change meanwhile."""

    namespaces: frozenset[str]
    links: frozenset[str]
    mounts: tuple[str, ...]
    cgroups: frozenset[str]
    settings: str


@dataclass(frozen=True)
class Running:
    cluster: Cluster
    api: Api
    before: Box


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    native.down(NAME)
    before = look_at_box()
    try:
        cluster = devcluster.up(NAME, nodes=3)
        yield Running(cluster, Api(devcluster.kubeconfig(NAME)), before)
    finally:
        native.down(NAME)


def test_nodes_are_ready_and_labelled(running: Running) -> None:
    nodes = running.api.get("/api/v1/nodes")["items"]
    assert [n["metadata"]["name"] for n in nodes] == ["node1", "node2", "node3"]
    assert [n["metadata"]["labels"][node.POOL_LABEL] for n in nodes] == ["gpu", "gpu", "cpu"]
    assert [n["status"]["allocatable"].get(node.GPU) for n in nodes] == ["1", "1", None]
    assert {n["status"]["nodeInfo"]["kubeletVersion"] for n in nodes} == {binaries.KUBERNETES_VERSION}


def test_starting_it_again_finds_it_running(running: Running) -> None:
    began = time.monotonic()
    assert devcluster.up(NAME, nodes=3) == running.cluster
    assert time.monotonic() - began < 5


def test_another_size_is_refused_while_it_runs(running: Running) -> None:
    with pytest.raises(devcluster.ClusterError, match="running with 3 nodes"):
        devcluster.up(NAME, nodes=4)


def test_an_image_made_of_wheels_runs_on_two_nodes(running: Running, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    write_wheel(tmp_path / "wheels")
    image = devcluster.build_image(tmp_path / "Dockerfile", tmp_path, TAG)
    devcluster.load(running.cluster, image)
    began = time.monotonic()
    devcluster.load(running.cluster, image)
    assert time.monotonic() - began < 5, "nodes that have an image are skipped"

    running.api.post(SERVICES, service("greeter"))
    running.api.post(PODS, pod("greeter", "node1", TAG))
    running.api.post(PODS, pod("client", "node2", TAG, ["sleep", "1000000"]))
    wait_until(lambda: all(pod_is_ready(running.api, name) for name in ("greeter", "client")), 60)


def test_a_service_answers_by_its_name_across_nodes(running: Running) -> None:
    wait_until(lambda: fetch("client", "http://greeter/") == "hello from greeter", 10)
    wait_until(lambda: fetch("client", "http://greeter.default.svc.cluster.local/") == "hello from greeter", 10)


def test_a_pod_reaches_its_own_service(running: Running) -> None:
    address = running.api.get(f"{SERVICES}/greeter")["spec"]["clusterIP"]
    wait_until(lambda: fetch("greeter", f"http://{address}/") == "hello from greeter", 10)


def test_logs_come_out(running: Running) -> None:
    assert "greeting" in running.api.text(f"{PODS}/greeter/log")


def test_the_api_server_reaches_pods_and_services(running: Running) -> None:
    assert running.api.text(f"{SERVICES}/greeter:80/proxy/") == "hello from greeter"
    assert running.api.text(f"{PODS}/greeter:8000/proxy/") == "hello from greeter"


def test_a_projected_token_names_its_pod(running: Running) -> None:
    token = execute("client", "cat", "/token/token")
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": ["robustrl"]},
    }
    status = running.api.post("/apis/authentication.k8s.io/v1/tokenreviews", body)["status"]
    assert status["authenticated"]
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["client"]


def test_memory_volumes_and_host_folders(running: Running) -> None:
    assert "tmpfs" in execute("client", "df", "--output=fstype", "/memory")
    assert "bin" in execute("client", "ls", "/host/usr").split()


def test_pods_that_want_a_gpu_go_where_one_is_free(running: Running) -> None:
    for name in ("trainer-0", "trainer-1", "trainer-2"):
        body = pod(name, "", TAG, ["sleep", "1000000"])
        body["spec"]["containers"][0]["resources"] = {"limits": {node.GPU: "1"}}
        running.api.post(PODS, body)
    wait_until(lambda: all(pod_is_ready(running.api, name) for name in ("trainer-0", "trainer-1")), 30)
    nodes = [running.api.get(f"{PODS}/trainer-{i}")["spec"].get("nodeName") for i in range(3)]
    assert set(nodes[:2]) == {"node1", "node2"}
    assert nodes[2] is None
    for name in ("trainer-0", "trainer-1", "trainer-2"):
        running.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def test_a_volume_is_the_same_on_every_node(running: Running) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    running.api.post(claims, claim)
    for name, where in (("writer", "node1"), ("reader", "node3")):
        body = pod(name, where, TAG, ["sleep", "1000000"])
        body["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
        body["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        running.api.post(PODS, body)
    wait_until(lambda: all(pod_is_ready(running.api, name) for name in ("writer", "reader")), 30)
    execute("writer", "sh", "-c", "echo kept > /data/file")
    assert execute("reader", "cat", "/data/file") == "kept\n"


def test_a_folder_of_a_volume_can_be_a_file_system_of_its_own(running: Running) -> None:
    with devcluster.own_file_system(running.cluster, "data", "small", mebibytes=1) as folder:
        body = pod("filler", "node3", TAG, ["sleep", "1000000"])
        body["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
        body["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        running.api.post(PODS, body)
        wait_until(lambda: pod_is_ready(running.api, "filler"), 30)
        execute("filler", "sh", "-c", "head -c 4M /dev/zero > /data/small/file || :")
        assert (folder / "file").stat().st_size == 1 << 20, "it is full, and the host sees the same"
        execute("filler", "sh", "-c", "head -c 4M /dev/zero > /data/elsewhere")
        running.api.delete(f"{PODS}/filler?gracePeriodSeconds=0")
    assert not list(folder.iterdir())


def test_an_unplugged_node_is_missed_and_comes_back(running: Running) -> None:
    devcluster.cut_node(running.cluster, "node2")
    wait_until(lambda: not is_ready(running.api, "node2"), 30)
    devcluster.heal_node(running.cluster, "node2")
    wait_until(lambda: is_ready(running.api, "node2"), 30)
    wait_until(lambda: fetch("client", "http://greeter/") == "hello from greeter", 20)


def test_a_frozen_node_is_missed_and_goes_on(running: Running) -> None:
    was = restarts(running.api, "client")
    devcluster.freeze_node(running.cluster, "node2")
    wait_until(lambda: not is_ready(running.api, "node2"), 30)
    devcluster.thaw_node(running.cluster, "node2")
    wait_until(lambda: is_ready(running.api, "node2"), 30)
    assert restarts(running.api, "client") == was, "nothing on it has ended"


def test_a_killed_node_is_missed_and_boots_again(running: Running) -> None:
    running.api.post(PODS, pod("steady", "node1", TAG))
    wait_until(lambda: pod_is_ready(running.api, "steady"), 30)
    devcluster.kill_node(running.cluster, "node1")
    # Killed processes stay listed until whoever adopted them has reaped them.
    wait_until(lambda: not cgroups.processes(running.cluster.worker("node1").cgroup), 5)
    began = time.monotonic()
    wait_until(lambda: not is_ready(running.api, "node1"), 30)
    assert time.monotonic() - began > 3, "the API server was told nothing"

    devcluster.revive_node(running.cluster, "node1")
    assert running.api.get("/api/v1/nodes/node1")["status"]["allocatable"][node.GPU] == "1"
    wait_until(lambda: restarts(running.api, "greeter") == 1 and pod_is_ready(running.api, "greeter"), 60)
    wait_until(lambda: fetch("client", "http://greeter/") == "hello from greeter", 20)


def test_the_api_server_hangs_and_goes_on(running: Running) -> None:
    began = time.monotonic()
    devcluster.stop_api(running.cluster, 2.0)
    wait_until(lambda: not running.api.missing_ready(), 20)
    assert time.monotonic() - began < 20


def test_an_interrupted_cluster_is_cleared_away_and_started_anew(running: Running) -> None:
    """The control plane is gone and so is the record, as if the box's owner had tried to tidy up by hand."""
    (state.folder(NAME) / "cluster.json").unlink()
    cluster = devcluster.up(NAME, nodes=1)
    assert is_ready(Api(devcluster.kubeconfig(NAME)), "node1")
    assert len(network.leftovers(NAME)) == 2 * len(cluster.machines) + 1


def test_nothing_is_left_of_it(running: Running) -> None:
    devcluster.down(NAME)
    assert native.remains(NAME) == []
    assert look_at_box() == running.before


def look_at_box() -> Box:
    others = [other for name in state.recorded() if name != NAME and (other := state.load(name))]
    foreign = {name for other in others for name in network.leftovers(other.name)}
    groups = {str(h / g.name) for h in cgroups.hierarchies() for g in h.glob("robustrl-*")}
    settings = "" if others else repr(sorted(Path("/proc/sys", s).read_text() for s in kernel.SETTINGS))
    return Box(
        namespaces=frozenset(network.namespaces()) - foreign,
        links=frozenset(os.listdir("/sys/class/net")) - foreign,
        mounts=tuple(point for point in mounts.points() if not point.startswith("/run/netns/rrl-")),
        cgroups=frozenset(group for group in groups if group.endswith(f"/robustrl-{NAME}")),
        settings=settings,
    )


def write_wheel(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "greeter-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeter.py", GREETER)
        wheel.writestr("greeter-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
        wheel.writestr("greeter-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("greeter-1.dist-info/RECORD", "")


def pod(name: str, where: str, image: str, command: list[str] | None = None) -> dict[str, Any]:
    volumes: dict[str, dict[str, Any]] = {
        "memory": {"emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        "host": {"hostPath": {"path": "/"}},
        "token": {"projected": {"sources": [{"serviceAccountToken": {"audience": "robustrl", "path": "token"}}]}},
    }
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "volumeMounts": [{"name": volume, "mountPath": f"/{volume}"} for volume in volumes],
        "readinessProbe": {"httpGet": {"port": 8000}, "periodSeconds": 1} if command is None else None,
    }
    if command is not None:
        container["command"] = command
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": where,
            "containers": [container],
            "volumes": [{"name": name, **source} for name, source in volumes.items()],
        },
    }


def service(name: str) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8000}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": ports},
    }


def execute(name: str, *command: str) -> str:
    kubectl: list[str | Path] = [
        binaries.kubectl(),
        "--kubeconfig",
        devcluster.kubeconfig(NAME),
        "exec",
        name,
        "--",
        *command,
    ]
    return subprocess.run(kubectl, capture_output=True, text=True, check=True, timeout=30).stdout


def fetch(name: str, url: str) -> str:
    """What a pod gets from a URL; the error's text if it gets none."""
    script = f"import urllib.request as r; print(r.urlopen('{url}', timeout=3).read().decode(), end='')"
    try:
        return execute(name, "python3", "-c", script)
    except subprocess.CalledProcessError as error:
        return str(error.stderr)[-200:]


def is_ready(api: Api, name: str) -> bool:
    return node_is_ready(api.get(f"/api/v1/nodes/{name}"))


def pod_is_ready(api: Api, name: str) -> bool:
    return node_is_ready(api.get(f"{PODS}/{name}"))


def restarts(api: Api, name: str) -> int:
    count: int = api.get(f"{PODS}/{name}")["status"]["containerStatuses"][0]["restartCount"]
    return count


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not true after {seconds} s"
        time.sleep(0.2)
