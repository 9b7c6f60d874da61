"""Jobs of the shapes that rows of the fault matrix ask for, on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.local.conftest import example
from tests.local.watching import DETECTION, SMALL_BATCH

from robustrl_api.job import RLJob
from robustrl_e2e import shapes
from robustrl_operator.faults.matrix import Shape

VOLUME_MEBIBYTES = 64
DEADLOCKS_IN_STEP = 3


def job_of(shape: Shape, **spec: Any) -> RLJob:
    """The example's job in this shape, with a small batch, and with fields (as in YAML) put over its spec."""
    job = example(data=SMALL_BATCH, detection=DETECTION, **spec).wire()
    shapes.put_on(shape, job["spec"])
    return RLJob.model_validate(job)


def deadlocking_job(**spec: Any) -> RLJob:
    """A job whose trainers wait for each other in its fourth step. No row strikes one, so it is no shape."""
    job = example(data=SMALL_BATCH, detection=DETECTION, **spec).wire()
    shapes.put_fault_in_script(job["spec"], "deadlock", DEADLOCKS_IN_STEP)
    return RLJob.model_validate(job)


@contextlib.contextmanager
def surroundings(shape: Shape, out: Path) -> Iterator[None]:
    """What a job of this shape needs around it."""
    with contextlib.ExitStack() as stack:
        if shape is Shape.OWN_VOLUME:
            stack.enter_context(_volume(out / "checkpoints"))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{shapes.SCRIPTS}")
        yield


@contextlib.contextmanager
def _volume(path: Path) -> Iterator[None]:
    """A small file system of its own; mounting one takes root."""
    if os.geteuid() != 0:
        pytest.skip("a volume can be mounted by root only")
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={VOLUME_MEBIBYTES}m", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
