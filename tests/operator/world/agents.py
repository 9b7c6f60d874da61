"""What agents in the world do when they are told: start processes, stop them, start them again, do harm."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.operator.build import SECOND
from tests.operator.world.machines import SimAgent, SimPod

from robustrl.supervisor.activity import ActivityWatch
from robustrl_api.control import Assignment, Child, ChildState, Exit, Harm, Strike, Struck
from robustrl_api.names import Role
from robustrl_operator.faults.kind import NO_FAULTS

if TYPE_CHECKING:
    from tests.operator.world.world import World


def set_child(world: World, agent: SimAgent, state: ChildState, exit: Exit | None = None, restarts: int = 0) -> None:
    agent.child = agent.child.model_copy(update={"state": state, "last_exit": exit, "restarts": restarts})
    agent.child_since = world.now


def obey(world: World, p: SimPod) -> None:
    agent = p.agent
    if agent is None or agent.assignment is None:
        return
    wanted = agent.assignment
    if wanted.role is Role.TRAINER or agent.role is Role.TRAINER:
        obey_as_trainer(world, agent, wanted)
    elif not wanted.run or wanted.role not in (Role.ROLLOUT, Role.MANAGER):
        agent.child = Child()
    else:
        keep_running(world, agent, wanted.end_life)
    agent.role = wanted.role
    if wanted.strike is not None and (agent.struck is None or agent.struck.id != wanted.strike.id):
        strike(world, p, agent, wanted.strike)


AGENT_RESTARTED = Exit(code=-9, message="the agent was restarted", agent_restarted=True)
"""What an agent says with its first report of workers that one before it had started."""


def strike(world: World, p: SimPod, agent: SimAgent, strike: Strike) -> None:
    """The pod's memory remembers it, also for the agent that comes after this one."""
    world.strikes.append((p.view.name, strike))
    agent.struck = Struck(id=strike.id)
    if strike.harm == Harm.KILL_AGENT:
        world.restart_agent(p.view.name)
    elif strike.harm in (Harm.FALL_SILENT, Harm.CUT_OFF):
        p.agent = None
    elif strike.harm not in NO_FAULTS:
        world.exit_child(p.view.name, -9)


def obey_as_trainer(world: World, agent: SimAgent, wanted: Assignment) -> None:
    if wanted.role is not Role.TRAINER or not wanted.run:
        agent.child = Child()
        return
    if agent.role is not Role.TRAINER or agent.child.epoch != wanted.epoch:
        agent.child, agent.rank = Child(epoch=wanted.epoch), wanted.rank
        if agent.started_epoch >= wanted.epoch:
            set_child(world, agent, ChildState.EXITED, AGENT_RESTARTED)
        else:
            set_child(world, agent, ChildState.STARTING)
            agent.started_epoch = wanted.epoch
    elif agent.child.state is ChildState.STARTING and world.now - agent.child_since >= SECOND / 2:
        set_child(world, agent, ChildState.RUNNING)
    elif agent.child.state is ChildState.RUNNING and (end := world.script(wanted.epoch)) is not None:
        set_child(world, agent, ChildState.EXITED, end)


def keep_running(world: World, agent: SimAgent, end_life: str) -> None:
    """Engines and managers are restarted in place: at once, then with growing delays."""
    child = agent.child
    delay = child.restarts * SECOND if child.restarts > 1 else timedelta(0)
    if child.state in (ChildState.NONE, ChildState.EXITED) and world.now - agent.child_since > delay:
        begin_life(world, agent)
    elif child.state in (ChildState.STARTING, ChildState.RUNNING) and end_life == child.life:
        last = Exit(code=-9, life=child.life, requested=True)
        set_child(world, agent, ChildState.EXITED, last, child.restarts + 1)
    elif child.state is ChildState.STARTING and not agent.hangs and world.now - agent.child_since >= SECOND:
        set_child(world, agent, ChildState.RUNNING, child.last_exit, child.restarts)


def begin_life(world: World, agent: SimAgent) -> None:
    agent.lives += 1
    agent.child = agent.child.model_copy(update={"life": f"{agent.boot}.{agent.lives}"})
    set_child(world, agent, ChildState.STARTING, agent.child.last_exit, agent.child.restarts)
    agent.works = not agent.hangs
    if agent.hangs:
        agent.watch = ActivityWatch(lambda: world.elapsed)
        agent.watch.sleeps(True)
