"""The audit of a real job that lost a worker: clean, and its batches give the same weights again, bit for bit."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.local.conftest import example, running

from robustrl_api.status import ConditionType, holds

pytestmark = [pytest.mark.local, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

STEPS, BROKEN = 6, 2
SECONDS = 180.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that is over; a worker of it was killed on the way."""
    out = tmp_path_factory.mktemp("audit") / "job"
    data = {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32, "keepBatches": STEPS}
    async with running(example(steps=STEPS, data=data, rollout={"replicas": 2}), out, "worker@3") as run:
        async with asyncio.timeout(SECONDS):
            status = await run.until_ended()
    assert holds(status, ConditionType.SUCCEEDED), status.conditions
    assert status.epoch == 2, status.incidents
    return out


async def audit(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    """Exit status, report and words of the command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from robustrl_operator.cli import main; main()", "audit", "--output", "json",
        *map(str, arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode is not None
    return process.returncode, json.loads(out or "{}"), err.decode()


async def test_a_job_that_lost_a_worker_is_proved_and_gives_the_same_weights_again(job: Path) -> None:
    status, found, words = await audit(job, "--replay")
    assert status == 0, (found, words)
    assert found["ok"]
    assert [reign["epoch"] for reign in found["reigns"]] == [1, 2]
    assert found["replayed"] == {"first": 0, "steps": STEPS}
    assert found["copies"]["good"], "the job has storage"


async def test_the_replay_may_begin_with_a_checkpoint_that_is_kept(job: Path) -> None:
    _, found, _ = await audit(job)
    first = int(found["copies"]["good"][0].partition(".")[2])
    status, found, words = await audit(job, "--replay", "--from-step", str(first))
    assert status == 0, (found, words)
    assert found["replayed"] == {"first": first, "steps": STEPS - first}


def copied(job: Path, folder: Path, alter: Callable[[sqlite3.Connection], object]) -> Path:
    """The job's folder with something in its ledger altered."""
    shutil.copytree(job, folder)
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        alter(db)
    db.close()
    return folder


def alter_a_reward(db: sqlite3.Connection) -> None:
    """Every other trajectory of a step is worth one more than it was when it was trained on."""
    db.execute(
        "UPDATE trajectories SET payload = json_set(payload, '$.reward', json_extract(payload, '$.reward') + 1) "
        "WHERE sample % 2 AND prompt_index IN (SELECT prompt_index FROM batch_groups WHERE step = ?)",
        (BROKEN,),
    )


async def test_an_altered_batch_is_found_by_its_name_and_by_the_replay(job: Path, tmp_path: Path) -> None:
    altered = copied(job, tmp_path / "altered", alter_a_reward)
    status, found, words = await audit(altered, "--replay")
    assert status == 1, (found, words)
    assert [(each["kind"], each["step"]) for each in found["findings"]] == [
        ("AlteredBatch", BROKEN), ("ReplayDiffers", BROKEN),
    ]  # fmt: skip
    assert found["replayed"] == {"first": 0, "steps": BROKEN}


async def test_a_checkpoint_that_is_not_the_committed_one_is_found(job: Path, tmp_path: Path) -> None:
    _, found, _ = await audit(job)
    version = found["copies"]["good"][-1]
    step = int(version.partition(".")[2]) - 1

    def alter_a_digest(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE commits SET digests = replace(digests, substr(digests, 8, 4), 'ffff') WHERE step = ?", (step,)
        )

    status, found, words = await audit(copied(job, tmp_path / "altered", alter_a_digest))
    assert status == 1, (found, words)
    assert {(each["kind"], each["step"]) for each in found["findings"]} == {("OtherCheckpoint", step)}
    assert version not in found["copies"]["good"]


async def test_a_replay_that_cannot_train_says_where_its_logs_are(job: Path, tmp_path: Path) -> None:
    broken = copied(job, tmp_path / "broken", lambda db: None)
    description = json.loads((broken / "run.json").read_text())
    description["job"]["spec"]["trainer"]["template"]["spec"]["containers"][0]["command"] = ["python3", "absent.py"]
    (broken / "run.json").write_text(json.dumps(description))
    status, _, words = await audit(broken, "--replay", "--out", tmp_path / "replay")
    assert status == 2
    assert "the replay ended after 0 steps" in words
    assert "absent.py" in words
    assert list((tmp_path / "replay/logs").glob("*trainer*"))
