"""A node's machine: containerd, kubelet and kube-proxy, and its place in the API (labels, fake GPU)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import layout, machine, preflight
from .api import Api, describe, node_is_ready
from .binaries import KUBERNETES
from .layout import Cluster, Machine
from .machine import BINARIES, CONFIG, Daemon
from .progress import wait_for

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "robustrl.dev/pause:1"
POOL_LABEL = "robustrl.dev/pool"
GPU = "nvidia.com/gpu"
# A quarter of it is the time between two renewals, the sign of life that the controller manager goes by.
LEASE_SECONDS = 8
NEVER = datetime.fromtimestamp(0, UTC)


def configure(cluster: Cluster, worker: Machine) -> None:
    """Write the node's configuration; its kubeconfigs come from the control plane."""
    folder = machine.config_folder(worker)
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(cni_config(worker), indent=1))
    (folder / "containerd.toml").write_text(render_containerd(preflight.cni_folder()))
    (folder / "kubelet.yaml").write_text(json.dumps(kubelet_config(worker), indent=1))
    (folder / "resolv.conf").write_text("")


def daemons(cluster: Cluster, worker: Machine) -> tuple[Daemon, ...]:
    return (
        Daemon("containerd", ("containerd", "--config", f"{CONFIG}/containerd.toml")),
        Daemon("kubelet", kubelet_command(cluster, worker), after=CONTAINERD_SOCKET),
        Daemon("kube-proxy", proxy_command(cluster, worker)),
    )


def kubelet_command(cluster: Cluster, worker: Machine) -> tuple[str, ...]:
    return (
        f"{BINARIES}/{KUBERNETES.inside('kubelet')}",
        f"--config={CONFIG}/kubelet.yaml",
        f"--kubeconfig={CONFIG}/kubelet.kubeconfig",
        f"--hostname-override={worker.name}",
        f"--node-ip={worker.address}",
        f"--node-labels={POOL_LABEL}={cluster.pool(worker.name)}",
    )


def proxy_command(cluster: Cluster, worker: Machine) -> tuple[str, ...]:
    return (
        f"{BINARIES}/{KUBERNETES.inside('kube-proxy')}",
        f"--kubeconfig={CONFIG}/kube-proxy.kubeconfig",
        f"--hostname-override={worker.name}",
        f"--cluster-cidr={cluster.pods_range}",
        "--proxy-mode=nftables",
        # These sysctls belong to the whole box and cannot be set from a network namespace.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    )


def kubelet_config(worker: Machine) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{worker.cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,  # a negative one needs CAP_SYS_RESOURCE
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "clusterDNS": [layout.DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{CONFIG}/resolv.conf",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": f"{CONFIG}/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "1m",
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        "serializeImagePulls": False,
        "makeIPTablesUtilChains": False,
        # All nodes share the box's one disk and memory: none may evict pods or images for what the others use.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
    }


def cni_config(worker: Machine) -> dict[str, Any]:
    """Every pod is a routed point-to-point link.

    With a bridge, the reply of a Service's pod on the client's own node would take the short way past the address
    translation, unless br_netfilter is loaded.
    """
    # Addresses are handed out from memory: after a power cut no pod is left that could own one.
    ipam = {"type": "host-local", "dataDir": "/run/cni-addresses", "ranges": [[{"subnet": str(worker.pods)}]]}
    plugin = {"type": "ptp", "ipMasq": False, "ipam": {**ipam, "routes": [{"dst": "0.0.0.0/0"}]}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}


def render_containerd(cni: Path) -> str:
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE a pod may not lower its score, and every sandbox would die at its start.
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{cni}"
  conf_dir = "{CONFIG}/cni"
"""


def wait_ready(cluster: Cluster, api: Api, names: tuple[str, ...], *, since: datetime = NEVER) -> None:
    """Wait until the nodes have said after `since` that they are Ready, and those with a GPU offer it.

    What a node said before a power cut stays in the API for a while, hence `since`.
    """
    waiting = list(names)

    def missing() -> str:
        try:
            waiting[:] = _waiting(cluster, api, names, since)
        except OSError as error:
            return describe(error)
        for name in waiting:
            machine.require_alive(cluster.worker(name))
        return f"waiting for {', '.join(waiting)}" if waiting else ""

    what = f"{len(names)} nodes Ready" if len(names) > 1 else f"{names[0]} Ready"
    wait_for(what, missing, log=lambda: machine.log(cluster.worker(waiting[0]), "kubelet"))


def offer_gpu(api: Api, name: str) -> None:
    """Put one GPU into the node's status. The kubelet keeps it, except at its first start after a boot."""
    amount = {GPU: "1"}
    api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amount, "allocatable": amount}})


def _waiting(cluster: Cluster, api: Api, names: tuple[str, ...], since: datetime) -> list[str]:
    nodes = {node["metadata"]["name"]: node for node in api.get("/api/v1/nodes")["items"]}
    return [name for name in names if not _settled(cluster, api, nodes.get(name), since)]


def _settled(cluster: Cluster, api: Api, node: dict[str, Any] | None, since: datetime) -> bool:
    if node is None or not node_is_ready(node) or last_word(node) < since:
        return False
    name = node["metadata"]["name"]
    # Only after the kubelet's first report since its boot: as it registers, it resets what it does not know.
    if cluster.has_gpu(name) and node["status"]["allocatable"].get(GPU) != "1":
        offer_gpu(api, name)
        return False
    return True


def last_word(node: dict[str, Any]) -> datetime:
    """When the kubelet last reported the Ready condition, in whole seconds."""
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    return datetime.fromisoformat(ready["lastHeartbeatTime"])
