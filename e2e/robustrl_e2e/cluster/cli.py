"""python -m robustrl_e2e.cluster COMMAND [--name NAME]"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import binaries, faults, images, lifecycle, machine, native, state
from .api import Api, describe, node_is_ready
from .errors import ClusterError
from .layout import Cluster

INTERRUPTED = 128 + signal.SIGINT
"""Exit status, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        _COMMANDS[options.command](options)
    except (ClusterError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        remedy = ": `up` again goes on from what there is, `down` removes it" if options.command == "up" else ""
        print(f"interrupted{remedy}", file=sys.stderr)
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default=lifecycle.DEFAULT_NAME, help="the cluster's name (default: %(default)s)")
    parser = argparse.ArgumentParser(prog="python -m robustrl_e2e.cluster", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=text, description=text)

    nodes = add("up", "start the cluster, or mend it if it runs")
    nodes.add_argument("--nodes", type=int, default=lifecycle.DEFAULT_NODES, help="machines (default: %(default)s)")
    add("down", "remove the cluster and all it left")
    add("status", "show its machines and nodes")
    image = add("images", "load an image into all nodes: the base, or one built from a Dockerfile")
    image.add_argument("--dockerfile", type=Path)
    image.add_argument("--context", type=Path, help="default: the Dockerfile's folder")
    image.add_argument("--tag")
    for name, (text, _) in _FAULTS.items():
        add(name, text).add_argument("node")
    slow = add("node-slow", "hold a node's traffic to a rate")
    slow.add_argument("node")
    slow.add_argument("megabits", type=int, help="per second, each way; 0 lifts the limit")
    add("api-stop", "let the API server hang").add_argument("seconds", type=float)
    for name in ("kubectl", "helm"):
        add(name, f"run {name} on this cluster").add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _up(options: argparse.Namespace) -> None:
    cluster = lifecycle.up(options.name, options.nodes)
    print(f"export KUBECONFIG={state.kubeconfig(cluster.name)}")


def _down(options: argparse.Namespace) -> None:
    lifecycle.down(options.name)


def _status(options: argparse.Namespace) -> None:
    cluster = state.require(options.name)
    print(f"{cluster.name}: {cluster.provider}, {cluster.nodes} nodes, KUBECONFIG={state.kubeconfig(cluster.name)}")
    ready = _ready_nodes(cluster)
    if cluster.provider == "kind":
        print("\n".join(f"{name}  {ready.get(name, 'not registered')}" for name in cluster.node_names))
        return
    parts = native.status(cluster)
    for part in parts:
        power, cable = "on" if part.running else "OFF", "plugged" if part.linked else "CUT"
        size = f"{part.processes:>4} processes {part.memory_bytes / 2**20:>6.0f} MiB"
        print(f"{part.name:<14} {power:<4} {cable:<8} {size}  {ready.get(part.name, '')}")
    print(f"resident memory in all: {sum(part.memory_bytes for part in parts) / 2**20:.0f} MiB")


def _ready_nodes(cluster: Cluster) -> dict[str, str]:
    try:
        items = Api(state.kubeconfig(cluster.name)).get("/api/v1/nodes")["items"]
    except OSError as error:
        print(f"API server: {describe(error)}")
        return {}
    return {node["metadata"]["name"]: "Ready" if node_is_ready(node) else "NotReady" for node in items}


def _images(options: argparse.Namespace) -> None:
    cluster = _running(options)
    if options.dockerfile is None:
        if options.tag is not None or options.context is not None:
            raise ClusterError("--tag and --context are of an image that is built: give --dockerfile too")
        image = images.build_base()
    else:
        if options.tag is None:
            raise ClusterError("--dockerfile needs --tag")
        image = images.build_image(options.dockerfile, options.context or options.dockerfile.parent, options.tag)
    images.load(cluster, image)
    print(image.tag)


def _slow(options: argparse.Namespace) -> None:
    faults.slow_node(_running(options), options.node, options.megabits or None)


def _stop_api(options: argparse.Namespace) -> None:
    faults.stop_api(_running(options), options.seconds)


def _fault(options: argparse.Namespace) -> None:
    _, action = _FAULTS[options.command]
    action(_running(options), options.node)


def _running(options: argparse.Namespace) -> Cluster:
    """The cluster of that name; a record alone may be older than the box's last boot."""
    cluster = state.require(options.name)
    if cluster.provider == "native" and not machine.alive(cluster.control_plane):
        raise ClusterError(
            f"cluster {cluster.name} is not running: start it with `python -m robustrl_e2e.cluster up --name "
            f"{cluster.name} --nodes {cluster.nodes}`"
        )
    return cluster


def _tool(options: argparse.Namespace) -> None:
    """Becomes kubectl or helm, so that terminals and exit codes are theirs."""
    cluster = state.require(options.name)
    program = binaries.kubectl() if options.command == "kubectl" else binaries.helm()
    given = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    os.environ["KUBECONFIG"] = str(state.kubeconfig(cluster.name))
    os.execv(program, [options.command, *given])


_DESCRIPTION = "A real Kubernetes cluster on this box, for development, tests and faults."
_FAULTS: dict[str, tuple[str, Callable[[Cluster, str], None]]] = {
    "node-kill": ("cut a node's power", faults.kill_node),
    "node-revive": ("boot a killed node", faults.revive_node),
    "node-cut": ("unplug a node's cable", faults.cut_node),
    "node-heal": ("plug it in again", faults.heal_node),
    "node-freeze": ("let a node stand still", faults.freeze_node),
    "node-thaw": ("let it go on", faults.thaw_node),
}
_COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "images": _images,
    "node-slow": _slow,
    "api-stop": _stop_api,
    "kubectl": _tool,
    "helm": _tool,
    **dict.fromkeys(_FAULTS, _fault),
}
