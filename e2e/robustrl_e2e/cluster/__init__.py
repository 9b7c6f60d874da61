"""A real Kubernetes cluster on one Linux box, with machines that can be killed. See docs/devcluster.md."""

from .api import Api
from .errors import ClusterError
from .faults import cut_node, freeze_node, heal_node, kill_node, revive_node, slow_node, stop_api, thaw_node
from .images import Image, build_base, build_image, built, give_back, load, take_away
from .layout import Cluster
from .lifecycle import down, up
from .state import kubeconfig, require
from .storage import own_file_system

__all__ = [
    "Api",
    "Cluster",
    "ClusterError",
    "Image",
    "build_base",
    "build_image",
    "built",
    "cut_node",
    "down",
    "freeze_node",
    "give_back",
    "heal_node",
    "kill_node",
    "kubeconfig",
    "load",
    "own_file_system",
    "require",
    "revive_node",
    "slow_node",
    "stop_api",
    "take_away",
    "thaw_node",
    "up",
]
