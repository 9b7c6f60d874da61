"""The example as processes on this machine.

Two jobs at once would compete for the processor and blur what is timed: these tests run one
after the other, and a file lock keeps other sessions on the machine out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.operator.build import merge

from robustrl_api.job import RLJob
from robustrl_operator.cli.manifest import read_job
from robustrl_operator.faults.kind import Fault
from robustrl_operator.local.run import LocalRun

EXAMPLE = Path(__file__).parents[2] / "examples/sort4"


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    """The example's folder, as the image has it, and this machine's ports to ourselves."""
    path = os.pathsep.join(filter(None, [str(EXAMPLE), os.environ.get("PYTHONPATH", "")]))
    lock = Path(tempfile.gettempdir()) / "robustrl-local-jobs.lock"
    with lock.open("w") as file, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(file, fcntl.LOCK_EX)
        patch.chdir(EXAMPLE)
        patch.setenv("PYTHONPATH", path)
        yield


def example(**spec: Any) -> RLJob:
    """The example's job with fields (as in YAML) put over its spec."""
    job = read_job(EXAMPLE / "rljob.yaml").wire()
    return RLJob.model_validate(merge(job, {"spec": spec}))


@contextlib.asynccontextmanager
async def running(job: RLJob, out: Path, *faults: str) -> AsyncIterator[LocalRun]:
    """The job at work; its processes are gone after the block."""
    async with LocalRun(job, out, [Fault.parse(fault) for fault in faults]).started() as run:
        yield run
