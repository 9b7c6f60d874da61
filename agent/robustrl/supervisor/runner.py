"""What playing a role means to the agent."""

from __future__ import annotations

from typing import Protocol

from robustrl_api.control import Assignment


class Runner(Protocol):
    """One role being played, from its start to its stop."""

    async def start(self, assignment: Assignment) -> None:
        """Begin. Returns when the processes are on their way, not when they are ready."""

    async def update(self, assignment: Assignment) -> None:
        """Something around the role changed: managers, peers. The role itself goes on."""

    async def works(self, seconds: float) -> bool:
        """Asked when the role's process is under suspicion: whether it shows within `seconds` that it works."""

    def process(self) -> int | None:
        """Process ID of the role's process, of the first where there are several; None while there is none."""

    async def leave(self) -> None:
        """The pod is about to go: return when nothing is under way here that would have to be done again."""

    async def stop(self) -> None:
        """End every process of the role, now."""
