"""The control plane's machine: etcd, API server, controller manager, scheduler and CoreDNS."""

from __future__ import annotations

from . import dns, layout, machine, pki, state
from .api import Api
from .binaries import COREDNS, KUBERNETES
from .layout import Cluster
from .machine import BINARIES, CONFIG, Daemon
from .progress import wait_for

ETCD = "http://127.0.0.1:2379"
# A node is NotReady this long after its last word. Kubelets renew their lease every 2 s (see node.py).
GRACE_SECONDS = 8


def configure(cluster: Cluster) -> None:
    """Write certificates, tokens and kubeconfigs, those of the nodes included."""
    folder = machine.config_folder(cluster.control_plane)
    pki.make_certificates(folder, cluster)
    users = pki.make_users(cluster)
    (folder / "tokens.csv").write_text(pki.render_tokens(users.values()))
    (folder / "Corefile").write_text(dns.render_corefile(cluster))
    ca = folder / "ca.crt"
    for name in ("kube-controller-manager", "kube-scheduler", "coredns"):
        (folder / f"{name}.kubeconfig").write_text(pki.render_kubeconfig(cluster, users[name], ca))
    for worker in cluster.workers:
        place = machine.config_folder(worker)
        place.mkdir(parents=True, exist_ok=True)
        (place / "ca.crt").write_bytes(ca.read_bytes())
        (place / "kubelet.kubeconfig").write_text(pki.render_kubeconfig(cluster, users[worker.name], ca))
        (place / "kube-proxy.kubeconfig").write_text(pki.render_kubeconfig(cluster, users["kube-proxy"], ca))
    state.kubeconfig(cluster.name).touch(mode=0o600)
    state.kubeconfig(cluster.name).write_text(pki.render_kubeconfig(cluster, users["admin"], ca))


def daemons(cluster: Cluster) -> tuple[Daemon, ...]:
    """Everything the machine runs. Each retries until what it needs answers, so the order does not matter."""
    return (
        Daemon("etcd", etcd_command()),
        Daemon("kube-apiserver", apiserver_command(cluster)),
        Daemon("kube-controller-manager", controller_manager_command()),
        Daemon("kube-scheduler", (_program("kube-scheduler"), *_kubeconfigs("kube-scheduler"), "--leader-elect=false")),
        Daemon("coredns", (f"{BINARIES}/{COREDNS.inside('coredns')}", "-conf", f"{CONFIG}/Corefile")),
    )


def etcd_command() -> tuple[str, ...]:
    return (
        "etcd",
        "--data-dir=/var/lib/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # a cluster to throw away: a power cut of the whole box may lose it
    )


def apiserver_command(cluster: Cluster) -> tuple[str, ...]:
    return (
        _program("kube-apiserver"),
        f"--etcd-servers={ETCD}",
        f"--service-cluster-ip-range={layout.SERVICES}",
        f"--advertise-address={cluster.control_plane.address}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={CONFIG}/service-accounts.key",
        f"--service-account-signing-key-file={CONFIG}/service-accounts.key",
        f"--tls-cert-file={CONFIG}/apiserver.crt",
        f"--tls-private-key-file={CONFIG}/apiserver.key",
        f"--client-ca-file={CONFIG}/ca.crt",
        f"--token-auth-file={CONFIG}/tokens.csv",
        f"--kubelet-client-certificate={CONFIG}/kubelet-client.crt",
        f"--kubelet-client-key={CONFIG}/kubelet-client.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-preferred-address-types=InternalIP",  # node names resolve nowhere
        "--profiling=false",
    )


def controller_manager_command() -> tuple[str, ...]:
    return (
        _program("kube-controller-manager"),
        *_kubeconfigs("kube-controller-manager"),
        f"--service-account-private-key-file={CONFIG}/service-accounts.key",
        f"--root-ca-file={CONFIG}/ca.crt",
        "--use-service-account-credentials",
        "--leader-elect=false",
        f"--node-monitor-grace-period={GRACE_SECONDS}s",
        "--node-monitor-period=1s",
        "--enable-hostpath-provisioner",
    )


def wait_ready(cluster: Cluster) -> Api:
    """Wait until the API server says it is ready."""
    plane, api = cluster.control_plane, Api(state.kubeconfig(cluster.name))

    def missing() -> str:
        machine.require_alive(plane)
        return api.missing_ready()

    wait_for("API server ready", missing, log=lambda: machine.log(plane, "kube-apiserver"))
    return api


def _program(name: str) -> str:
    return f"{BINARIES}/{KUBERNETES.inside(name)}"


def _kubeconfigs(name: str) -> tuple[str, ...]:
    path = f"{CONFIG}/{name}.kubeconfig"
    return tuple(f"--{kind}={path}" for kind in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"))
