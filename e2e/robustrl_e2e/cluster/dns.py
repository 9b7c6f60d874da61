"""Cluster DNS: CoreDNS on the control plane's machine, behind the usual kube-dns Service.

Not in pods: names then resolve as soon as the API server answers, and go on resolving whichever node is killed.
"""

from __future__ import annotations

from typing import Any

from . import layout, machine, proxy
from .api import Api, describe
from .layout import Cluster
from .progress import wait_for

READY_PORT = 8181
TTL = 2  # seconds; a client that resolves again sees a replaced pod soon


def render_corefile(cluster: Cluster) -> str:
    address = cluster.control_plane.address
    return f"""\
.:53 {{
    bind {address}
    errors
    ready {address}:{READY_PORT}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {machine.CONFIG}/coredns.kubeconfig
        pods insecure
        ttl {TTL}
    }}
    cache {TTL}
}}
"""


def install(cluster: Cluster, api: Api) -> None:
    """Give CoreDNS its rights and the Service its endpoint, then wait until it has read the cluster."""
    wait_for("DNS objects", lambda: _missing_objects(cluster, api))
    plane = cluster.control_plane
    wait_for("DNS ready", lambda: _missing_ready(cluster), log=lambda: machine.log(plane, "coredns"))


def objects(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What is applied, by API path."""
    rbac, system = "/apis/rbac.authorization.k8s.io/v1", "/namespaces/kube-system"
    return {
        f"{rbac}/clusterroles/system:coredns": _role(),
        f"{rbac}/clusterrolebindings/system:coredns": _binding(),
        f"/api/v1{system}/services/kube-dns": _service(),
        f"/apis/discovery.k8s.io/v1{system}/endpointslices/kube-dns": _endpoints(cluster),
    }


def _missing_objects(cluster: Cluster, api: Api) -> str:
    """The namespace appears a moment after the API server is ready, so a refusal is tried again."""
    try:
        for path, body in objects(cluster).items():
            api.apply(path, body)
    except OSError as error:
        return describe(error)
    return ""


def _missing_ready(cluster: Cluster) -> str:
    try:
        with proxy.DIRECT.open(f"http://{cluster.control_plane.address}:{READY_PORT}/ready", timeout=2):
            return ""
    except OSError as error:
        return str(error)


def _role() -> dict[str, Any]:
    watch = ["list", "watch"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": watch},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch},
        ],
    }


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}],
    }


def _service() -> dict[str, Any]:
    ports = [{"name": name.lower(), "port": 53, "targetPort": 53, "protocol": name} for name in ("UDP", "TCP")]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns"},
        "spec": {"clusterIP": layout.DNS_SERVICE, "ports": ports},
    }


def _endpoints(cluster: Cluster) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns", "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [cluster.control_plane.address], "conditions": {"ready": True}}],
        "ports": [{"name": name.lower(), "port": 53, "protocol": name} for name in ("UDP", "TCP")],
    }
