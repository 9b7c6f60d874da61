"""Half an hour of life that is healthy but awkward, in virtual time: nobody is convicted of anything.

Agents measure with their real `ActivityWatch`, fed with what the processes of such a job do; what the operator makes
of it is the real analyze and plan. Scripts of a step, and of an engine's day, are tables of what is done for how long
and whether the work can be seen to go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.operator.build import job
from tests.operator.world.machines import SimAgent
from tests.operator.world.world import World

from robustrl.supervisor.activity import ActivityWatch
from robustrl_api.control import ChildState
from robustrl_api.names import Role
from robustrl_api.node import PodReading, Source
from robustrl_operator.view import Observed

MINUTES = 30


@dataclass(frozen=True)
class Act:
    """What a process does for some seconds.

    Attributes:
        still: whether it looks as if nothing went on: no processor time, no token, no answer.
        dark: whether its GPU idles.
    """

    phase: str
    seconds: float
    still: bool = False
    dark: bool = False


Day = tuple[Act, ...]
WAIT, TRAIN, SAVE = Act("Wait", 5), Act("Train", 20), Act("Checkpoint", 1)
STEP: Day = (WAIT, TRAIN, SAVE)
SERVE = Act("Serving", 30)
UPDATE: Day = (Act("Pulling", 4), Act("Applying", 2))
ANSWER = Act("", 30)


@dataclass(frozen=True)
class Story:
    """What each process does, over and over.

    Attributes:
        trainer: acts of a step, by step and rank. What both ranks do together takes both equally long.
    """

    trainer: Callable[[int, int], Day] = lambda step, rank: STEP
    rollout: Day = (SERVE, *UPDATE)
    manager: Day = (ANSWER,)
    operators: float = 0.0
    """Seconds after which an operator is replaced by one that knows nothing; 0: never."""


def tools(step: int, rank: int) -> Day:
    """Batches take two minutes of tool calls, and every third step the loss calls one itself."""
    scoring = (Act("Train", 120, still=True),) if step % 3 == 2 else ()
    return Act("Wait", 150), *scoring, TRAIN, SAVE


def evaluation_of_all(step: int, rank: int) -> Day:
    return (*((Act("Evaluate", 400),) if step % 3 == 0 else ()), *STEP)


def evaluation_of_one(step: int, rank: int) -> Day:
    """Rank 0 evaluates; the others wait for it in their first collective."""
    if step % 3:
        return STEP
    if rank == 0:
        return Act("Evaluate", 500), *STEP
    return WAIT, Act("Train", 500, still=True, dark=True), TRAIN, SAVE


def slow_start(step: int, rank: int) -> Day:
    """Compilers run for ten minutes and then, in a new shape, for two; connections are made for four."""
    if step == 0:
        return WAIT, Act("Train", 240, still=True, dark=True), Act("Train", 600, dark=True), SAVE
    return (WAIT, Act("Train", 120, dark=True), TRAIN, SAVE) if step == 9 else STEP


def slow_storage(step: int, rank: int) -> Day:
    return WAIT, TRAIN, Act("Checkpoint", 150 if step % 5 == 4 else 2)


def manager_away(step: int, rank: int) -> Day:
    return (WAIT, TRAIN, Act("Checkpoint", 25)) if step % 4 == 1 else (Act("Wait", 30), TRAIN, SAVE)


def everything(step: int, rank: int) -> Day:
    if step == 0:
        return slow_start(step, rank)
    kinds = (tools, evaluation_of_one, slow_storage, evaluation_of_all, manager_away)
    return kinds[step % len(kinds)](step // len(kinds), rank)


AWAY: Day = (ANSWER, Act("", 25, still=True))
NO_REQUESTS: Day = (Act("Serving", 10), Act("Serving", 120), *UPDATE)
SLOW_UPDATE: Day = (SERVE, Act("Pulling", 240), Act("Applying", 500, still=True))
PAUSED: Day = (SERVE, Act("Serving", 200, still=True), *UPDATE)

STORIES = {
    "tool calls of two minutes": Story(tools, NO_REQUESTS),
    "long evaluation": Story(evaluation_of_all),
    "long evaluation by rank 0": Story(evaluation_of_one),
    "slow weight updates": Story(rollout=SLOW_UPDATE),
    "paused engine": Story(rollout=PAUSED),
    "first step slow": Story(slow_start),
    "slow storage": Story(slow_storage),
    "manager away for a moment": Story(manager_away, manager=AWAY),
    "everything": Story(everything, (*NO_REQUESTS, *SLOW_UPDATE, *PAUSED), AWAY, operators=200),
}


class Actor:
    """One process and its place in its day."""

    def __init__(self, world: World) -> None:
        self.watch = ActivityWatch(lambda: world.elapsed)
        self.acts: Day = ()
        self.ends = 0.0
        self.dark_since: float | None = None

    def begin(self, acts: Day, now: float) -> None:
        self.acts, self.ends = acts, now + acts[0].seconds

    def play(self, now: float) -> None:
        while self.acts and now >= self.ends:
            self.acts = self.acts[1:]
            self.ends += self.acts[0].seconds if self.acts else 0.0
        if not self.acts:
            self.watch.enter("")
            self.watch.moved()
            return
        act = self.acts[0]
        self.watch.enter(act.phase)
        if not act.dark:
            self.dark_since = None
        elif self.dark_since is None:
            self.dark_since = now
        # While weights are applied, the agent does not count an engine's standing still.
        if act.still and act.phase != "Applying":
            self.watch.stands_still("nothing goes on")
        else:
            self.watch.moved()


class Life:
    """Plays a story in a world: everybody lives its day, and steps are made when all ranks are at their end."""

    def __init__(self, world: World, story: Story) -> None:
        self.world, self.story = world, story
        self.actors: dict[str, Actor] = {}
        self.step = -1
        self.renewed = 0.0
        world.live, world.may_step = self.go_on, self.is_over

    def go_on(self) -> None:
        now = self.world.elapsed
        if self.story.operators and now - self.renewed >= self.story.operators:
            self.renewed = now
            self.world.replace_operator()
        if self.world.ledger_step > self.step and self.ranks():
            self.step = self.world.ledger_step
            for rank, actor in self.ranks():
                actor.begin(self.story.trainer(self.step, rank), now)
        for pod in self.world.pods.values():
            if pod.agent is not None and pod.agent.child.state is ChildState.RUNNING:
                self.act(pod.view.uid, pod.agent, now)

    def act(self, uid: str, agent: SimAgent, now: float) -> None:
        actor = self.actor(uid)
        agent.watch = actor.watch
        if not actor.acts and agent.role is not Role.TRAINER:
            actor.begin(self.story.rollout if agent.role is Role.ROLLOUT else self.story.manager, now)
        actor.play(now)
        idle = 0.0 if actor.dark_since is None else now - actor.dark_since
        # A process that waits or compiles keeps a core busy or does not; one that is held up by others answers nobody.
        agent.works = agent.role is not Role.TRAINER or not any(act.still for act in actor.acts[:1])
        reading = PodReading(uid=uid, source=Source.GPU, idle_seconds=idle, idle_text="its GPU idles" if idle else "")
        self.world.readings[uid] = Observed(reading, self.world.now)

    def actor(self, uid: str) -> Actor:
        return self.actors.setdefault(uid, Actor(self.world))

    def ranks(self) -> list[tuple[int, Actor]]:
        """Of trainers that are all at work."""
        found = [(m.rank, m.uid) for m in self.world.status.members if m.uid in self.world.pods]
        agents = [self.world.pods[uid].agent for _, uid in found]
        up = [agent for agent in agents if agent is not None and agent.child.state is ChildState.RUNNING]
        return [(rank, self.actor(uid)) for rank, uid in found] if len(up) == self.world.spec.trainer.replicas else []

    def is_over(self) -> bool:
        ranks = self.ranks()
        return self.step == self.world.ledger_step and bool(ranks) and not any(actor.acts for _, actor in ranks)


def lived(story: Story, minutes: float, **patch: Any) -> World:
    world = World(job(steps=100_000, **patch))
    Life(world, story)
    return world.run(60 * minutes)


CASES = [(name, "RoleBased") for name in STORIES] + [("everything", "WholeJob")]


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_nobody_is_convicted(name: str, strategy: str) -> None:
    world = lived(STORIES[name], MINUTES, recovery={"strategy": strategy})
    assert world.convictions == []
    assert world.status.incidents == ()
    assert (world.status.epoch, world.status.attempt) == (1, 0)
    assert world.ledger_step >= 3, "the job goes on"


def hang(step: int, rank: int) -> Day:
    """Rank 1 stops in the middle of a step; rank 0 waits for it, or is already in what comes after."""
    if step < 4:
        return STEP
    return WAIT, TRAIN, Act("Train", 10_000, still=True)


def hang_behind_a_checkpoint(step: int, rank: int) -> Day:
    if step < 4:
        return STEP
    return (*STEP[:2], Act("Checkpoint", 800)) if rank == 0 else (WAIT, Act("Train", 10_000, still=True))


@pytest.mark.parametrize(("trainer", "cause"), [(hang, "WorkerHung"), (hang_behind_a_checkpoint, "PhaseOverdue")])
def test_a_hang_is_still_found(trainer: Callable[[int, int], Day], cause: str) -> None:
    """Behind a checkpoint the lease of who waits ends first; all processes restart either way."""
    world = lived(Story(trainer), 15)
    assert world.convictions
    assert world.convictions[0][1].cause == cause
    assert world.incidents()[0].cause == cause
