"""The things that the world is made of, and what each remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.operator.build import NOW

from robustrl.supervisor.activity import ActivityWatch
from robustrl_api.control import Assignment, Child, Complaint, Struck
from robustrl_api.names import Role
from robustrl_operator.view import Heard, PodView, Probe

GRACE = timedelta(seconds=15)


@dataclass
class SimNode:
    name: str
    gpu: bool = True
    powered: bool = True
    cut: bool = False
    bad_since: datetime | None = None

    @property
    def reachable(self) -> bool:
        return self.powered and not self.cut


@dataclass
class SimAgent:
    """A pod's agent, reduced to what it tells and what it does when told."""

    boot: int
    role: Role
    assignment: Assignment | None = None
    child: Child = field(default_factory=Child)
    child_since: datetime = NOW
    rank: int = -1
    """The rank that the child was started with."""
    started_epoch: int = 0
    step: int = 0
    complaint: Complaint | None = None
    struck: Struck | None = None
    up: bool = True
    watch: ActivityWatch | None = None
    """How its work goes on, where a story tells of that."""
    works: bool = True
    """What a deep probe finds."""
    hangs: bool = False
    """Whether an engine that it starts sleeps instead of coming up."""
    lives: int = 0
    """Processes that it has started."""


@dataclass
class SimPod:
    view: PodView
    agent: SimAgent | None = None
    deleted_at: datetime | None = None
    waiting: str = ""


@dataclass
class Operator:
    """What an operator process keeps in memory. A new one starts with nothing."""

    since: datetime
    reports: dict[str, Heard] = field(default_factory=dict)
    probes: dict[str, Probe] = field(default_factory=dict)
    down_until: datetime | None = None


class OperatorKilled(Exception):
    """The operator process ended in the middle of carrying out a plan."""
