"""Jobs of the shapes that rows of the fault matrix ask for, on the development cluster, with what they need around."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustrl_e2e import cluster, shapes
from robustrl_e2e.cluster_job import ClusterJob, Object
from robustrl_e2e.exporters import Exporters, watched
from robustrl_operator.faults.matrix import Shape

SCRIPTS = "/scripts"
VOLUME_MEBIBYTES = 64
STORAGE_FOLDER = "checkpoints"
"""Of the example's checkpoints, on its volume."""


@dataclass(frozen=True)
class Surroundings:
    """What faults strike besides the job's pods and their machines.

    Attributes:
        exporters: of the machines' GPUs, where the job has any.
        checkpoints: the host's folder where the volume of the checkpoints is mounted, where it is one of its own.
    """

    exporters: Exporters | None = None
    checkpoints: Path | None = None


USUAL = Surroundings()


@contextlib.contextmanager
def shaped_job(running: cluster.Cluster, manifest: Object, shape: Shape) -> Iterator[tuple[ClusterJob, Surroundings]]:
    """A job of a shape; it is deleted after the block.

    Raises:
        ClusterError: this cluster cannot have what it needs.
    """
    name = str(manifest["metadata"]["name"])
    with contextlib.ExitStack() as around:
        job = ClusterJob.prepare(running, name)
        around.callback(job.delete)
        checkpoints = None
        if shape is Shape.OWN_VOLUME:
            checkpoints = around.enter_context(cluster.own_file_system(running, name, STORAGE_FOLDER, VOLUME_MEBIBYTES))
        job.apply(_scripts(name), shaped(manifest, shape))
        exporters = around.enter_context(watched(job)) if shape is Shape.WATCHED else None
        yield job, Surroundings(exporters, checkpoints)


def shaped(manifest: Object, shape: Shape) -> Object:
    """The manifest of a job of this shape, whose pods that train and generate can import the scripts."""
    manifest = copy.deepcopy(manifest)
    shapes.put_on(shape, manifest["spec"], SCRIPTS)
    pod = manifest["spec"]["trainer"]["template"]["spec"]
    container: dict[str, Any] = pod["containers"][0]
    container["volumeMounts"].append({"name": "scripts", "mountPath": SCRIPTS, "readOnly": True})
    pod["volumes"].append({"name": "scripts", "configMap": {"name": _name(manifest["metadata"]["name"])}})
    path = next(each for each in container["env"] if each["name"] == "PYTHONPATH")
    path["value"] += f":{SCRIPTS}"
    return manifest


def _scripts(job: str) -> Object:
    data = {path.name: path.read_text() for path in sorted(shapes.SCRIPTS.glob("*.py"))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _name(job)}, "data": data}


def _name(job: str) -> str:
    return f"{job}-scripts"
