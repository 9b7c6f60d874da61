"""What a body must be able to do. Three methods to see, three to act; it decides nothing."""

from __future__ import annotations

from typing import Protocol

from robustrl_api.job import RLJob
from robustrl_api.status import RLJobStatus
from robustrl_operator.faults.kind import Means
from robustrl_operator.plan import Action, Event
from robustrl_operator.view import NodeView, PodView


class StatusConflict(Exception):
    """The stored job is not the one that was read: look again and plan again."""


class StatusRefused(Exception):
    """The store does not take this status, and would not take it again; the text says why, for a person."""


class CreationRefused(Exception):
    """A pod may not be made, as by a quota or an admission policy; the text says why, for a person."""


class Body(Protocol):
    """Where a job lives: the API server, or a machine's processes."""

    rendezvous_base: int
    means: frozenset[Means]
    """What this body can do to a pod when a fault shall be made on purpose."""

    def job(self, key: str) -> RLJob | None:
        """The job as last seen, or None when it no longer exists."""

    def pods(self, key: str) -> tuple[PodView, ...]:
        """The job's pods as last seen."""

    def nodes(self) -> dict[str, NodeView]:
        """The nodes as last seen."""

    async def write_status(self, job: RLJob, status: RLJobStatus) -> None:
        """Store the status if the job is still the one that was read.

        Raises:
            StatusConflict: it is not.
            StatusRefused: it is, and such a status is not taken.
        """

    async def carry_out(self, job: RLJob, action: Action) -> None:
        """Do one action. Doing it twice is harmless.

        Raises:
            CreationRefused: the same would be refused again.
        """

    async def publish(self, job: RLJob, event: Event) -> None:
        """Make an event known. Failing to is no reason to stop."""
