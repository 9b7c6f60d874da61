"""One round of the loop: status first, then actions with the status that was stored, events last."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from tests.operator.build import NOW, job, running_job

from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.status import RLJobStatus
from robustrl_operator.control.body import StatusConflict
from robustrl_operator.control.hub import ControlHub
from robustrl_operator.control.prober import Prober
from robustrl_operator.control.reconciler import Reconciler
from robustrl_operator.faults.kind import Means
from robustrl_operator.plan import Action, CreatePod, Event
from robustrl_operator.view import NodeView, PodView


class Notebook:
    """A body that keeps what it is told, in order."""

    rendezvous_base = 29_500
    means: frozenset[Means] = frozenset()

    def __init__(self, job: RLJob, pods: tuple[PodView, ...] = ()) -> None:
        self.stored, self._pods = job, pods
        self.said: list[tuple[str, Any]] = []
        self.conflict = False

    def job(self, key: str) -> RLJob | None:
        return self.stored

    def pods(self, key: str) -> tuple[PodView, ...]:
        return self._pods

    def nodes(self) -> dict[str, NodeView]:
        return {}

    async def write_status(self, job: RLJob, status: RLJobStatus) -> None:
        if self.conflict:
            raise StatusConflict
        self.stored = job.model_copy(update={"status": status})
        self.said.append(("status", status))

    async def carry_out(self, job: RLJob, action: Action) -> None:
        self.said.append(("action", (job, action)))

    async def publish(self, job: RLJob, event: Event) -> None:
        self.said.append(("event", event))


def rl_job(status: RLJobStatus | None = None, **spec: Any) -> RLJob:
    return RLJob.model_validate(
        {"metadata": {"name": "j"}, "spec": job(**spec).model_dump(by_alias=True), "status": status or RLJobStatus()}
    )


def reconciler(body: Notebook) -> Reconciler:
    def clock() -> datetime:
        return NOW

    return Reconciler("j", body, ControlHub(clock, lambda _: None), Prober(clock, lambda: None), clock)


async def test_status_is_stored_before_anything_is_done_and_events_come_last() -> None:
    body = Notebook(rl_job())
    await reconciler(body).reconcile()
    kinds = [kind for kind, _ in body.said]
    assert kinds == sorted(kinds, key=["status", "action", "event"].index)
    assert {"status", "action", "event"} == set(kinds)


async def test_nothing_is_done_when_the_status_could_not_be_stored() -> None:
    body = Notebook(rl_job())
    body.conflict = True
    with pytest.raises(StatusConflict):
        await reconciler(body).reconcile()
    assert body.said == []


async def test_pods_of_a_new_attempt_are_made_as_such() -> None:
    """They would be taken for those of the attempt before, and deleted, if the old status were shown to the body."""
    view = running_job(job(recovery={"strategy": "WholeJob"}))
    lost = tuple(pod for pod in view.pods if pod.origin is not Role.MANAGER)
    body = Notebook(rl_job(view.status, recovery={"strategy": "WholeJob"}), lost[1:])
    await reconciler(body).reconcile()
    created = [(told.status.attempt, action) for kind, (told, action) in _actions(body) if kind == "action"]
    attempts = {attempt for attempt, action in created if isinstance(action, CreatePod)}
    assert attempts == {1}
    assert body.stored.status.attempt == 1


def _actions(body: Notebook) -> list[tuple[str, Any]]:
    return [(kind, what) for kind, what in body.said if kind == "action"]
