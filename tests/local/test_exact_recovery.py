"""A job that recovered has the weights of one that met no fault, bit for bit.

In mode Sync and with a deterministic engine nothing is left to chance: a step's batch is the next prompts, each token
is drawn by a seed of its own, and a step that is done again is the same step.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.local.conftest import example, running

from robustrl.audit import report
from robustrl.checkpoint.folder import read_manifest
from robustrl_api.job import RLJob
from robustrl_api.status import ConditionType, holds
from robustrl_api.version import Version

STEPS = 12
SECONDS = 180.0
ENGINE = (
    "python3", "-m", "robustrl.engines.embedded", "--model", "sort4.model:build_model", "--host", "$POD_IP",
    "--port", "8100", "--enable-deterministic-inference",
)  # fmt: skip


def exact_job() -> RLJob:
    return example(
        steps=STEPS,
        mode="Sync",
        maxStaleness=0,
        data={"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32},
        rollout={"replicas": 2, "minReplicas": 2, "engine": {"command": ENGINE}},
    )


async def checkpoints(out: Path, *faults: str) -> tuple[dict[int, set[str]], int]:
    """Digests of the checkpoints in storage by step, one for each different copy; and the last epoch."""
    async with running(exact_job(), out, *faults) as run:
        async with asyncio.timeout(SECONDS):
            status = await run.until_ended()
    assert holds(status, ConditionType.SUCCEEDED), status.conditions
    found = report.read(out / "ledger.sqlite")
    assert found["audit"]["ok"], found["audit"]
    assert [commit["step"] for commit in found["curve"]] == list(range(STEPS))
    stored: dict[int, set[str]] = {}
    for path in (out / "checkpoints").glob("*/rank-*/MANIFEST.json"):
        step = Version.parse(path.parents[1].name).step
        stored.setdefault(step, set()).add(read_manifest(path.parent).root)
    return stored, status.epoch


@pytest.mark.local
@pytest.mark.timeout(400)
async def test_recovered_weights_are_those_of_a_run_without_faults(tmp_path: Path) -> None:
    undisturbed, _ = await checkpoints(tmp_path / "undisturbed")
    recovered, epoch = await checkpoints(tmp_path / "recovered", "worker@4", "trainer@8")
    assert epoch == 3, "both faults were answered"
    assert all(len(copies) == 1 for copies in undisturbed.values()), "all ranks hold the same"
    assert recovered[STEPS] == undisturbed[STEPS]
    for step in recovered.keys() & undisturbed.keys():
        assert recovered[step] == undisturbed[step], f"after {step} steps"
    assert len({min(copies) for copies in undisturbed.values()}) == len(undisturbed), "each step changed them"
