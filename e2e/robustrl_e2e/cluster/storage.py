"""Volumes that outlive every node, as network storage does: folders of the cluster that all its machines share.

The controller manager's own provisioner for hostPath makes one folder for each claim, always below one fixed path.
Every machine has the cluster's folder mounted there, so a claim's data is the same on all nodes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from . import state
from .api import Api, describe
from .progress import wait_for

CLASS = "shared"
# The provisioner's path is fixed in its source.
MOUNT_POINT = Path("/tmp/hostpath_pv")


def folder(cluster: str) -> Path:
    """Where the claims' folders are, on the host."""
    return state.folder(cluster) / "volumes"


def prepare(cluster: str) -> None:
    """Make the folder, and the empty one that machines mount it on."""
    folder(cluster).mkdir(parents=True, exist_ok=True)
    MOUNT_POINT.mkdir(exist_ok=True)


def forget() -> None:
    """Remove the mount point after the last cluster; one that holds anything is not ours."""
    with suppress(OSError):
        MOUNT_POINT.rmdir()


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
