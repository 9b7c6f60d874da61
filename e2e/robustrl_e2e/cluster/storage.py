"""Volumes that outlive every node, as network storage does: folders of the cluster that all its machines share.

The controller manager's own provisioner for hostPath makes one folder for each claim, always below one fixed path.
Every machine has the cluster's folder mounted there, so a claim's data is the same on all nodes. What is mounted below
that folder later, on the host, shows up in all machines: so a claim can have a file system of its own, which gets full
or read-only without harm to anybody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import mounts, state
from .api import Api, describe
from .errors import ClusterError
from .layout import Cluster
from .process import run
from .progress import wait_for

CLASS = "shared"
# The provisioner's path is fixed in its source.
MOUNT_POINT = Path("/tmp/hostpath_pv")


def folder(cluster: str) -> Path:
    """Where the claims' folders are, on the host."""
    return state.folder(cluster) / "volumes"


def prepare(cluster: str) -> None:
    """Make the folder, and the empty one that machines mount it on."""
    path = folder(cluster)
    path.mkdir(parents=True, exist_ok=True)
    MOUNT_POINT.mkdir(exist_ok=True)
    # What is mounted below it reaches the machines only if it is a mount itself that is shared with them.
    run("mount", "--bind", path, path)
    run("mount", "--make-shared", path)


def forget() -> None:
    """Remove the mount point after the last cluster; one that holds anything is not ours."""
    with suppress(OSError):
        MOUNT_POINT.rmdir()


@contextmanager
def own_file_system(cluster: Cluster, claim: str, name: str, mebibytes: int) -> Iterator[Path]:
    """Make one folder of a claim a small file system of its own, before anybody uses it; where the host has it.

    Raises:
        ClusterError: a cluster that kind made, or one that runs since before there was this, has no such folders; or
            the claim is not bound in time.
    """
    if str(folder(cluster.name)) not in mounts.points():
        raise ClusterError(
            f"no volume of cluster {cluster.name} can have a file system of its own: with kind none can; another one "
            f"was started by an older version and must be taken down first: make cluster-down CLUSTER={cluster.name}"
        )
    api = Api(state.kubeconfig(cluster.name))
    wait_for(f"volume of claim {claim}", lambda: "" if _volume_of(api, claim) else f"claim {claim} is not bound")
    path = folder(cluster.name) / Path(_volume_of(api, claim)).name / name
    path.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0777", "tmpfs", path)
    try:
        yield path
    finally:
        run("umount", "--lazy", path)  # pods that still use it keep it until they end


def _volume_of(api: Api, claim: str) -> str:
    """Where a claim's folder is in every machine; empty while it has none."""
    try:
        bound = api.get(f"/api/v1/namespaces/default/persistentvolumeclaims/{claim}")["spec"].get("volumeName", "")
        return str(api.get(f"/api/v1/persistentvolumes/{bound}")["spec"]["hostPath"]["path"]) if bound else ""
    except OSError:
        return ""


def install(api: Api) -> None:
    """Make the class of such volumes the default one."""
    wait_for("storage class", lambda: _missing(api))


def storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/host-path",
        "reclaimPolicy": "Delete",
    }


def _missing(api: Api) -> str:
    try:
        api.apply(f"/apis/storage.k8s.io/v1/storageclasses/{CLASS}", storage_class())
    except OSError as error:
        return describe(error)
    return ""
