"""RobustRL on the development cluster: images from this working tree, the operator by Helm."""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from robustrl_e2e import cluster
from robustrl_e2e.cluster import binaries
from robustrl_e2e.cluster.process import run
from robustrl_e2e.cluster.progress import START_SECONDS, step

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "robustrl-system"
RELEASE = "robustrl"
IMAGE = "localhost/robustrl:dev"
JOB_IMAGE = "localhost/robustrl-sort4:dev"
READY_SECONDS = round(START_SECONDS)


def site_packages() -> str:
    """This interpreter's packages, torch among them, which the demo's pods mount instead of a 5 GB image."""
    return sysconfig.get_paths()["purelib"]


def bring_up(name: str = "robustrl", nodes: int = 8) -> cluster.Cluster:
    """Cluster, images and operator, whatever of them is there already."""
    running = cluster.up(name, nodes)
    build_and_load(running)
    install(running)
    restart_operator(running)
    return running


def build_and_load(running: cluster.Cluster) -> None:
    """Build both images from the working tree and put them where they are needed."""
    with tempfile.TemporaryDirectory(prefix="robustrl-image-") as folder:
        context = Path(folder)
        _wheels(context / "wheels")
        shutil.copy(ROOT / "Dockerfile", context)
        project = cluster.build_image(context / "Dockerfile", context, IMAGE)
    with tempfile.TemporaryDirectory(prefix="robustrl-example-") as folder:
        context = Path(folder)
        example = ROOT / "examples" / "sort4"
        for name in ("Dockerfile", "train.py"):
            shutil.copy(example / name, context)
        shutil.copytree(example / "sort4", context / "sort4", ignore=shutil.ignore_patterns("__pycache__"))
        job = cluster.build_image(context / "Dockerfile", context, JOB_IMAGE, project)
    cluster.load(running, project, [name for name in running.node_names if not running.has_gpu(name)])
    cluster.load(running, job)


def _wheels(target: Path) -> None:
    """The project's wheel and those of its pinned dependencies."""
    target.mkdir()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with step("wheels"):
        run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", target, ROOT)
        run(*pip, "download", "--require-hashes", "--no-deps", "--dest", target,
            "--requirement", ROOT / "requirements" / "image.txt")  # fmt: skip


def install(running: cluster.Cluster, *settings: str) -> None:
    """`helm upgrade --install` with settings of the chart (NAME=VALUE), and wait until all of it is ready."""
    config = cluster.kubeconfig(running.name)
    helm: list[str | Path] = [binaries.helm(), "--kubeconfig", config, "--namespace", NAMESPACE]
    _free_release(helm)
    with step("operator"):
        run(binaries.kubectl(), "--kubeconfig", config, "apply", "--server-side", "-f", ROOT / "crds" / "rljob.yaml")
        run(
            *helm, "upgrade", "--install", RELEASE, ROOT / "charts" / "robustrl",
            "--create-namespace", "--skip-crds", "--wait", "--timeout", f"{READY_SECONDS}s",
            "--set", "nodeSelector.robustrl\\.dev/pool=cpu", "--set", f"image.repository={IMAGE.rpartition(':')[0]}",
            *(word for setting in settings for word in ("--set", setting)),
        )  # fmt: skip


def _free_release(helm: list[str | Path]) -> None:
    """A helm that is killed leaves its release locked for ever. Nobody else installs on this cluster meanwhile."""
    json_of = ("--output", "json")
    if not json.loads(run(*helm, "list", "--pending", "--filter", f"^{RELEASE}$", *json_of)):
        return
    command = freeing(json.loads(run(*helm, "history", RELEASE, *json_of)))
    with step(f"an installation was cut off: helm {' '.join(command)}"):
        run(*helm, *command)


def freeing(history: list[dict[str, Any]]) -> tuple[str, ...]:
    """What helm must do with a release whose last revision is pending, given its history.

    Back to the last revision that was once installed; where none was, away with the rest of the first.
    """
    installed = [each["revision"] for each in history if each["status"] in ("deployed", "superseded")]
    if not installed:
        return "uninstall", RELEASE, "--wait"
    return "rollback", RELEASE, str(max(installed))


def restart_operator(running: cluster.Cluster) -> None:
    """Have the operator's pod replaced, so that it runs the image loaded last."""
    config = cluster.kubeconfig(running.name)
    command: list[str | Path] = [binaries.kubectl(), "--kubeconfig", config, "-n", NAMESPACE, "rollout"]
    run(*command, "restart", "deployment/robustrl-operator")
    run(*command, "status", "deployment/robustrl-operator", f"--timeout={READY_SECONDS}s")
