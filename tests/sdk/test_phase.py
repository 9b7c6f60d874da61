"""What the script says that it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.sdk import test_restore

from robustrl.sdk.job import TrainerJob


class Agent:
    def __init__(self) -> None:
        self.phases: list[str] = []

    def enter(self, phase: str) -> None:
        self.phases.append(phase)


def trainer(tmp_path: Path, agent: Agent) -> TrainerJob:
    return test_restore.trainer(tmp_path, cast(Any, agent), cast(Any, None))


def test_a_phase_ends_with_an_exception_too(tmp_path: Path) -> None:
    """A script that catches it and goes on would be taken for hanging in that phase."""
    agent = Agent()
    with pytest.raises(ValueError, match="a bad sample"), trainer(tmp_path, agent).phase("Evaluate"):
        raise ValueError("a bad sample")
    assert agent.phases == ["Evaluate", ""]


def test_a_name_that_a_report_has_no_room_for_is_refused(tmp_path: Path) -> None:
    agent = Agent()
    with pytest.raises(ValueError, match="at most 63 characters"), trainer(tmp_path, agent).phase("x" * 64):
        pass
    assert agent.phases == []
