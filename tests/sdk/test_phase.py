"""What the script says that it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from robustrl.sdk.job import TrainerJob
from robustrl.sdk.worker_config import WorkerConfig


class Agent:
    def __init__(self) -> None:
        self.phases: list[str] = []

    def enter(self, phase: str) -> None:
        self.phases.append(phase)


def test_a_phase_ends_with_an_exception_too(tmp_path: Path) -> None:
    """A script that catches it and goes on would be taken for hanging in that phase."""
    config = WorkerConfig(
        job="j", pod="p", epoch=1, rank=0, world_size=1, local_rank=0, rendezvous="", agent_socket="",
        memory_dir=str(tmp_path), steps=9, seed=0,
    )  # fmt: skip
    agent = Agent()
    job = TrainerJob(config, cast(Any, agent), cast(Any, None))
    with pytest.raises(ValueError, match="a bad sample"), job.phase("Evaluate"):
        raise ValueError("a bad sample")
    assert agent.phases == ["Evaluate", ""]
