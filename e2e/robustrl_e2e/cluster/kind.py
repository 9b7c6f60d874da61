"""The same cluster by kind, where a Docker engine answers: a control plane and N workers in containers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from . import state
from .api import Api
from .errors import ClusterError
from .layout import Cluster
from .process import run
from .progress import step

BASE = "python:3.11-slim-bookworm"
ENGINE_SECONDS = 30.0
"""A Docker engine that hangs takes the question and never answers."""


def available() -> bool:
    """Whether kind is installed and a Docker engine answers."""
    if not shutil.which("kind") or not shutil.which("docker"):
        return False
    try:
        run("docker", "info", seconds=ENGINE_SECONDS)
    except ClusterError:
        return False
    return True


def up(name: str, nodes: int, offer: Callable[[Api, Cluster], None]) -> Cluster:
    """Create the cluster unless it is there; `offer` puts labels and GPUs on its nodes."""
    cluster = Cluster(name, nodes, "kind")
    with state.locked(name), step(f"kind cluster {name}"):
        state.save(cluster)
        kubeconfig = state.kubeconfig(name)
        if name in run("kind", "get", "clusters").split():
            run("kind", "export", "kubeconfig", "--name", name, "--kubeconfig", kubeconfig)
        else:
            config = state.folder(name) / "kind.yaml"
            config.write_text(render_config(nodes))
            options = ("--name", name, "--config", config, "--kubeconfig", kubeconfig, "--wait", "120s")
            run("kind", "create", "cluster", *options)
        offer(Api(kubeconfig), cluster)
    return cluster


def render_config(nodes: int) -> str:
    """One control plane and the workers, with a short grace period for dead nodes (JSON is YAML)."""
    patch = (
        "kind: ClusterConfiguration\n"
        "controllerManager: {extraArgs: {node-monitor-grace-period: 8s, node-monitor-period: 1s}}\n"
    )
    roles = ["control-plane", *["worker"] * nodes]
    return json.dumps({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role} for role in roles],
        "kubeadmConfigPatches": [patch],
    })  # fmt: skip


def down(name: str) -> None:
    run("kind", "delete", "cluster", "--name", name)
    shutil.rmtree(state.folder(name), ignore_errors=True)


def build_image(dockerfile: Path, context: Path, tag: str, base: str = "") -> Path:
    """Build with Docker; the image stays in the engine, so there is no archive to speak of."""
    with step(f"building image {tag}"):
        run("docker", "build", "--build-arg", f"BASE={base or BASE}", "--tag", tag, "--file", dockerfile, context)
    return Path("/dev/null")


def load_image(cluster: Cluster, tag: str) -> None:
    with step(f"image {tag} in {cluster.nodes} nodes"):
        run("kind", "load", "docker-image", tag, "--name", cluster.name)


def kill_node(node: str) -> None:
    run("docker", "kill", node)


def revive_node(node: str) -> None:
    run("docker", "start", node)


def freeze_node(node: str) -> None:
    run("docker", "pause", node)


def thaw_node(node: str) -> None:
    run("docker", "unpause", node)


def cut_node(node: str) -> None:
    run("docker", "network", "disconnect", "kind", node)


def heal_node(node: str) -> None:
    run("docker", "network", "connect", "kind", node)
