"""An agent follows no assignment of an epoch that is over, whoever sends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from robustrl.supervisor.agent import Agent
from robustrl_api.control import Assignment, ChildState
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    config = PodConfig(
        job="j", namespace="ns", role=Role.TRAINER, control_url="http://127.0.0.1:1", steps=9,
        memory_dir=str(tmp_path), warm_worker=False, trainer_command=("true",),
    )  # fmt: skip
    made = Agent(config, "p", "127.0.0.1")
    assert made._memory.prepare() == ""
    yield made
    await made._managers.close()


def assigned(epoch: int) -> Assignment:
    return Assignment(role=Role.TRAINER, epoch=epoch, run=False)


async def test_epochs_never_go_back(agent: Agent) -> None:
    await agent._apply(assigned(7))
    await agent._apply(assigned(6))
    assert agent._state.epoch == 7
    await agent._apply(assigned(8))
    assert agent._state.epoch == 8


async def test_an_agent_that_was_restarted_says_at_once_that_its_workers_are_gone(agent: Agent) -> None:
    agent._tell_of_lost_workers()
    assert agent._state.child.last_exit is None, "none were started here"
    agent._memory.mark_started(7)
    agent._tell_of_lost_workers()
    child = agent._state.child
    assert (child.state, child.epoch) == (ChildState.EXITED, 7)
    assert child.last_exit is not None
    assert child.last_exit.agent_restarted


async def test_an_agent_that_was_restarted_remembers_the_epoch_it_started(agent: Agent) -> None:
    agent._memory.mark_started(7)
    await agent._apply(assigned(6))
    assert agent._state.epoch == 0, "it was not followed"
    await agent._apply(assigned(7))
    assert agent._state.epoch == 7
