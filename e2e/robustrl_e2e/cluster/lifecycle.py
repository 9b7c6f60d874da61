"""Up and down, by whichever way this box has."""

from __future__ import annotations

from . import kind, native, node, state
from .api import Api, describe
from .layout import Cluster
from .progress import wait_for

DEFAULT_NAME = "robustrl"
DEFAULT_NODES = 8


def up(name: str = DEFAULT_NAME, nodes: int = DEFAULT_NODES) -> Cluster:
    """Start the cluster, or find it running. Nodes 1 to N-1 have a fake GPU and pool=gpu, node N has pool=cpu."""
    if kind.available():
        return kind.up(name, nodes, _offer)
    return native.up(name, nodes)


def down(name: str = DEFAULT_NAME) -> None:
    """Remove the cluster and all it left; nothing happens if there is none."""
    cluster = state.load(name)
    if cluster is not None and cluster.provider == "kind":
        kind.down(name)
    else:
        native.down(name)


def _offer(api: Api, cluster: Cluster) -> None:
    """Put labels and GPUs on the nodes; kind returns when its control plane is ready, and nodes may come later."""
    wait_for("labels and GPUs of the nodes", lambda: _missing_offer(api, cluster))


def _missing_offer(api: Api, cluster: Cluster) -> str:
    try:
        for name in cluster.node_names:
            api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {node.POOL_LABEL: cluster.pool(name)}}})
            if cluster.has_gpu(name):
                node.offer_gpu(api, name)
    except OSError as error:
        return describe(error)
    return ""
