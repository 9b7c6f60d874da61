"""One job, one fault after another: each restarts its own role and nothing else, and the job goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.local.conftest import example, running

from robustrl.audit import report
from robustrl_operator.faults.matrix import MATRIX, Row
from robustrl_operator.local.run import LocalRun

pytestmark = [pytest.mark.local, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

DETECTION = {
    # A busy machine starts an agent more slowly than three heartbeats; it must not be taken for lost meanwhile.
    "lostAfterMissed": 8,
    "trainer": {"idleSeconds": 8},
    "rollout": {"zeroThroughputSeconds": 8},
    "manager": {"unansweredSeconds": 8},
    "probeSeconds": 2,
}
SMALL_BATCH = {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32}
STEPS_BETWEEN = 3
START_SECONDS, RECOVERY_SECONDS = 120.0, 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalRun]:
    job = example(steps=100_000, data=SMALL_BATCH, detection=DETECTION)
    async with running(job, tmp_path_factory.mktemp("faults") / "out") as at_work:
        yield at_work


def agents(run: LocalRun) -> dict[str, tuple[str, str]]:
    """Name and the agent's boot of each pod, by UID."""
    found = {}
    for pod in run.body.processes:
        heard = run.hub.heard(pod.uid)
        if heard and not pod.deleting:
            found[pod.uid] = (pod.name, heard.report.boot)
    return found


def at_work(run: LocalRun) -> bool:
    roles = run.status.roles
    full = bool(roles) and all(role.ready >= role.desired for role in roles)
    return full and run.status.recovery is None and not run.ended()


async def until_well(run: LocalRun, step: int, incidents: int, seconds: float) -> None:
    """Wait until so many steps and incidents are on record and every role is complete."""
    async with asyncio.timeout(seconds):
        while not (run.step >= step and total(run) >= incidents and at_work(run)):
            assert not run.ended(), run.status.conditions
            await asyncio.sleep(0.1)


def total(run: LocalRun) -> int:
    """Faults on record, as Events: status keeps the last ten only."""
    return sum(event.reason == "FaultDetected" for _, event in run.body.events)


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.name)
async def test_a_fault_restarts_its_role_only(run: LocalRun, row: Row) -> None:
    await until_well(run, STEPS_BETWEEN, 0, START_SECONDS)
    before, epoch, incidents, step = agents(run), run.status.epoch, total(run), run.step
    struck = await run.strike(row.kind, row.index)
    await until_well(run, step + STEPS_BETWEEN, incidents + row.incidents, RECOVERY_SECONDS)
    assert run.status.epoch == epoch + row.epochs, run.status.incidents
    after = agents(run)
    for uid, (name, boot) in before.items():
        if name not in struck:
            assert after.get(uid) == (name, boot), f"{name} has nothing to do with {struck}"
        else:
            assert (uid in after) is row.keeps_pod
            assert (after.get(uid, ("", ""))[1] == boot) is (row.keeps_pod and row.keeps_agent)
    assert total(run) == incidents + row.incidents, run.status.incidents
    found = run.status.incidents[-row.incidents :]
    assert {incident.cause for incident in found} <= set(row.causes)
    assert any(f"rule {row.rule}" in incident.decision for incident in found)


async def test_after_all_of_them_every_trajectory_was_used_once(run: LocalRun) -> None:
    found = report.read(run.folder / "ledger.sqlite")
    assert found["audit"]["ok"], found["audit"]
    assert [commit["step"] for commit in found["curve"]] == list(range(len(found["curve"])))
