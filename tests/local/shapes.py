"""The jobs that rows of the fault matrix ask for, as fields put over the example's spec."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.local.watching import DETECTION, SMALL_BATCH

from robustrl_operator.faults.matrix import Shape

SCRIPTS = Path(__file__).parent / "scripts"
VOLUME_MEBIBYTES = 64


def _script(*words: str) -> dict[str, Any]:
    container = {"name": "trainer", "image": "none", "command": ["python3", *words]}
    return {"template": {"spec": {"containers": [container]}}}


_FRONT = [
    "python3",
    str(SCRIPTS / "front.py"),
    "--model",
    "sort4.model:build_model",
    "--host",
    "$POD_IP",
    "--port",
    "8100",
]
SHAPES: dict[Shape, dict[str, Any]] = {
    Shape.USUAL: {},
    Shape.THREE_TRAINERS: {"trainer": {"replicas": 3, "parallelism": {"data": 3}}},
    # No warm worker starts these engines, and each imports torch by itself: two will do.
    Shape.FRONTED: {"rollout": {"replicas": 2, "minReplicas": 1, "engine": {"type": "Custom", "command": _FRONT}}},
    Shape.OWN_VOLUME: {},
    Shape.BIG: {
        "trainer": _script(str(SCRIPTS / "big.py")),
        # Three are enough for one that dies and others that pull, and start sooner than four.
        "rollout": {"replicas": 3, "engine": {"model": "big_model:build"}},
        "checkpoint": {"storage": None, "peerCopy": "Off"},
    },
    Shape.FAILS_TO_RESTART: {"trainer": _script(str(SCRIPTS / "faulty.py"), "restart", "3")},
}


def spec_of(shape: Shape) -> dict[str, Any]:
    return {"data": SMALL_BATCH, "detection": DETECTION, **SHAPES[shape]}


@contextlib.contextmanager
def surroundings(shape: Shape, out: Path) -> Iterator[None]:
    """What a job of this shape needs around it."""
    with contextlib.ExitStack() as stack:
        if shape is Shape.OWN_VOLUME:
            stack.enter_context(_volume(out / "checkpoints"))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{SCRIPTS}")
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
