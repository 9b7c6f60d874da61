"""`robustrl inject` on a job that runs here: struck through the operator and the agents, and followed to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.local.conftest import example, running

from robustrl.audit import record, report
from robustrl_api.status import InjectionStage
from robustrl_operator.cli.main import main
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder

pytestmark = [pytest.mark.local, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SMALL_BATCH = {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalRun]:
    job = example(steps=100_000, data=SMALL_BATCH, detection={"lostAfterMissed": 8}, faultInjection={"mode": "Allowed"})
    async with running(job, tmp_path_factory.mktemp("inject") / "out") as at_work:
        await at_work.until_step(3)
        yield at_work


def inject(run: LocalRun, *arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["inject", *arguments, "--out", str(run.folder), "--timeout", "120"])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("kind", "target", "cause", "epochs"),
    [
        ("worker", "rank 0", {"WorkerExited"}, 1),
        ("engine", "rollout/1", {"EngineExited"}, 0),
        ("trainer-agent", "trainer", {"AgentRestarted"}, 1),
        ("managers", "", {"ManagerExited"}, 0),
        ("rollout", "", {"HeartbeatLost", "NodeLost"}, 0),
    ],
)
async def test_the_job_is_over_it(
    run: LocalRun, capfd: pytest.CaptureFixture[str], kind: str, target: str, cause: set[str], epochs: int
) -> None:
    epoch = run.status.epoch
    assert await asyncio.to_thread(inject, run, kind, *target.split()) == 0, capfd.readouterr().out
    said = capfd.readouterr().out
    assert all(words in said for words in ("struck: ", "detected after", "decision: ", "over it")), said
    injection, incident = run.status.injection, run.status.incidents[-1]
    assert injection is not None
    assert injection.stage is InjectionStage.STRUCK
    assert incident.injection == injection.id
    assert incident.cause in cause
    assert run.status.epoch == epoch + epochs
    assert report.of(record.read(RunFolder(run.folder).ledger)).findings == ()


async def test_a_lost_checkpoint_costs_its_step_and_nothing_else(
    run: LocalRun, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = RunFolder(run.folder).ledger
    epoch, undone = run.status.epoch, len(record.read(ledger).undone)
    assert await asyncio.to_thread(inject, run, "checkpoint-damage") == 0, capfd.readouterr().out
    assert run.status.incidents[-1].cause == "WorkerExited"
    assert run.status.epoch == epoch + 1
    assert len(record.read(ledger).undone) == undone + 1
    assert report.of(record.read(ledger)).findings == ()


async def test_the_operator_is_away_for_a_while_and_nothing_comes_of_it(
    run: LocalRun, capfd: pytest.CaptureFixture[str]
) -> None:
    before, step = run.status, run.step
    assert await asyncio.to_thread(inject, run, "leader") == 0, capfd.readouterr().out
    said = capfd.readouterr().out
    assert all(words in said for words in ("strikes operator", "nothing was taken for a fault")), said
    assert run.step > step
    assert (run.status.epoch, run.status.incidents) == (before.epoch, before.incidents)


async def test_no_such_pod_is_refused(run: LocalRun, capfd: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(inject, run, "worker", "rank", "7") == 1
    assert "refused: there is no trainer 7" in capfd.readouterr().out
