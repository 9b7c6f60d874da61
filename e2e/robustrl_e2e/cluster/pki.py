"""Certificates and tokens of one cluster, made anew for each."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import layout
from .layout import Cluster
from .process import run

DAYS = "3650"


@dataclass(frozen=True)
class User:
    """Who a token speaks for."""

    name: str
    token: str
    group: str = ""


def make_users(cluster: Cluster) -> dict[str, User]:
    """One user for each daemon and one for the administrator, by a short name."""
    components = ("kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns")
    users = {name: User(f"system:{name}", secrets.token_hex(24)) for name in components}
    users["admin"] = User("admin", secrets.token_hex(24), "system:masters")
    for node in cluster.node_names:
        users[node] = User(f"system:node:{node}", secrets.token_hex(24), "system:nodes")
    return users


def render_tokens(users: Iterable[User]) -> str:
    """The API server's static token file."""
    return "".join(f'{user.token},{user.name},{user.name},"{user.group}"\n' for user in users)


def make_certificates(folder: Path, cluster: Cluster) -> None:
    """A CA, the API server's serving certificate, its client certificate for kubelets, and the tokens' signing key."""
    folder.mkdir(parents=True, exist_ok=True)
    _key(folder / "ca.key")
    run("openssl", "req", "-x509", "-new", "-key", folder / "ca.key", "-out", folder / "ca.crt",
        "-subj", f"/CN=robustrl-{cluster.name}-ca", "-days", DAYS)  # fmt: skip
    _certificate(folder, "apiserver", "/CN=kube-apiserver", alternative_names(cluster))
    _certificate(folder, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", "")
    _key(folder / "service-accounts.key")


def alternative_names(cluster: Cluster) -> str:
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    names = ("localhost", *service)
    addresses = ("127.0.0.1", layout.API_SERVICE, cluster.control_plane.address)
    return ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])


def render_kubeconfig(cluster: Cluster, user: User, ca: Path) -> str:
    """A kubeconfig that holds everything it needs (JSON is YAML)."""
    name = f"robustrl-{cluster.name}"
    authority = base64.b64encode(ca.read_bytes()).decode()
    return json.dumps({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": cluster.api_url, "certificate-authority-data": authority}}],
        "users": [{"name": user.name, "user": {"token": user.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user.name}}],
        "current-context": name,
    }, indent=1)  # fmt: skip


def _key(path: Path) -> None:
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _certificate(folder: Path, name: str, subject: str, alternatives: str) -> None:
    _key(folder / f"{name}.key")
    request = run("openssl", "req", "-new", "-key", folder / f"{name}.key", "-subj", subject)
    usage = "extendedKeyUsage=serverAuth,clientAuth\n"
    extensions = folder / f"{name}.ext"
    extensions.write_text(usage + (f"subjectAltName={alternatives}\n" if alternatives else ""))
    run("openssl", "x509", "-req", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial",
        "-days", DAYS, "-extfile", extensions, "-out", folder / f"{name}.crt", stdin=request)  # fmt: skip
