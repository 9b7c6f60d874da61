"""Restoring from the training script's side: one process, with an agent and a ledger that the test plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from robustrl.sdk import job as sdk
from robustrl.sdk.job import TrainerJob
from robustrl.sdk.ledger import LedgerRefused
from robustrl.sdk.worker_config import WorkerConfig


class Agent:
    """Holds copies of some checkpoints, by step."""

    def __init__(self, *steps: int) -> None:
        self.steps = steps
        self.asked: list[int] = []

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        assert operation == "restore"
        self.asked.append(fields["step"])
        if fields["step"] not in self.steps:
            raise RuntimeError(f"no good copy of checkpoint {fields['step']}")
        return {"path": f"/copies/{fields['step']}"}

    def enter(self, phase: str) -> None:
        pass

    def tell(self, operation: str, **fields: Any) -> None:
        pass


class Book:
    """A ledger at some step, which goes back no further than another."""

    def __init__(self, step: int, oldest: int) -> None:
        self.step, self.oldest = step, oldest

    def join(self, rank: int, world_size: int, pod: str) -> dict[str, Any]:
        restore = {"epoch": 1, "step": self.step, "digests": {"0": f"digest of {self.step}"}}
        return {"restore": restore if self.step else None, "step": self.step}

    def roll_back(self, step: int) -> dict[str, Any]:
        if step < self.oldest:
            raise LedgerRefused(f"TooLongAgo: the batch of step {step} is not kept any more")
        self.step = step
        return self.join(0, 1, "")


class Saved:
    """What the checkpointer was told to load."""

    def __init__(self) -> None:
        self.module = None
        self.loaded: list[Path] = []

    def load(self, path: Path) -> None:
        self.loaded.append(path)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> Saved:
    saved = Saved()
    monkeypatch.setattr(sdk, "Checkpointer", lambda objects: saved)
    monkeypatch.setattr(sdk, "FETCH_PAUSE_SECONDS", 0.0)
    return saved


def trainer(tmp_path: Path, agent: Agent, book: Book) -> TrainerJob:
    config = WorkerConfig(
        job="j", pod="p", epoch=2, rank=0, world_size=1, local_rank=0, rendezvous="", agent_socket="",
        memory_dir=str(tmp_path), steps=9, seed=0, phase_lease_seconds=900.0,
    )  # fmt: skip
    return TrainerJob(config, cast(Any, agent), cast(Any, book))


def test_the_newest_checkpoint_is_restored(tmp_path: Path, saved: Saved) -> None:
    assert trainer(tmp_path, Agent(7), Book(7, 0)).restore() == 7
    assert saved.loaded == [Path("/copies/7")]


def test_a_job_that_begins_restores_nothing(tmp_path: Path, saved: Saved) -> None:
    assert trainer(tmp_path, Agent(), Book(0, 0)).restore() == 0
    assert saved.loaded == []


def test_the_newest_of_which_there_is_a_copy_is_taken(tmp_path: Path, saved: Saved) -> None:
    agent, book = Agent(4, 5), Book(7, 0)
    job = trainer(tmp_path, agent, book)
    assert job.restore() == 5
    assert saved.loaded == [Path("/copies/5")]
    assert next(job.steps()) == 5
    assert agent.asked == [7] * sdk.FETCH_TRIES + [6] * sdk.FETCH_TRIES + [5], "none is given up at the first failure"


def test_without_any_copy_the_job_begins_anew_if_its_first_batches_are_kept(tmp_path: Path, saved: Saved) -> None:
    assert trainer(tmp_path, Agent(), Book(2, 0)).restore() == 0
    assert saved.loaded == []


def test_too_long_ago_is_an_error_that_says_what_was_tried(tmp_path: Path, saved: Saved) -> None:
    with pytest.raises(RuntimeError, match=r"no good copy of checkpoint 6; and TooLongAgo: the batch of step 5"):
        trainer(tmp_path, Agent(3), Book(7, 6)).restore()
