"""One round of the loop: status first, then actions with the status that was stored, events last."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.operator.build import NOW, SECOND, job, running_job

from robustrl_api.control import Assignment
from robustrl_api.injection import Request
from robustrl_api.job import RLJob
from robustrl_api.names import ANNOTATION_INJECT, Role
from robustrl_api.node import NodeReport
from robustrl_api.status import InjectionStage, InjectionStatus, InjectionTarget, RLJobStatus
from robustrl_operator.control import reconciler as reconciling
from robustrl_operator.control.body import CreationRefused, StatusConflict, StatusRefused
from robustrl_operator.control.hub import ControlHub, PodIdentity
from robustrl_operator.control.prober import Prober
from robustrl_operator.control.reconciler import Reconciler
from robustrl_operator.faults.kind import Means
from robustrl_operator.plan import Action, CreatePod, Event, Relabel
from robustrl_operator.view import Heard, NodeView, PodView, Probe, timestamp


class Notebook:
    """A body that keeps what it is told, in order."""

    rendezvous_base = 29_500
    means: frozenset[Means] = frozenset()

    def __init__(self, job: RLJob, pods: tuple[PodView, ...] = ()) -> None:
        self.stored, self._pods = job, pods
        self.said: list[tuple[str, Any]] = []
        self.conflict = False
        self.refusal = ""
        self.forbidden: type[Any] | None = None
        self.error: Exception = PermissionError("exceeded quota")

    def job(self, key: str) -> RLJob | None:
        return self.stored

    def pods(self, key: str) -> tuple[PodView, ...]:
        return self._pods

    def nodes(self) -> dict[str, NodeView]:
        return {}

    async def write_status(self, job: RLJob, status: RLJobStatus) -> None:
        if self.conflict:
            raise StatusConflict
        if self.refusal:
            raise StatusRefused(self.refusal)
        self.stored = job.model_copy(update={"status": status})
        self.said.append(("status", status))

    async def carry_out(self, job: RLJob, action: Action) -> None:
        if self.forbidden and isinstance(action, self.forbidden):
            raise self.error
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


async def test_a_status_that_is_refused_is_told_of_once() -> None:
    """The operator may be newer than the CRD. It goes on trying, and people hear why nothing happens."""
    body = Notebook(rl_job())
    looked_at = reconciler(body)
    for body.refusal in ("stage: Unsupported value", "stage: Unsupported value", "another"):
        with pytest.raises(StatusRefused):
            await looked_at.reconcile()
    assert [(kind, what.reason) for kind, what in body.said] == [("event", "StatusRefused")] * 2
    body.refusal = ""
    await looked_at.reconcile()
    body.refusal = "another"
    body.stored = rl_job()
    with pytest.raises(StatusRefused):
        await looked_at.reconcile()
    assert [what.reason for kind, what in body.said if kind == "event"].count("StatusRefused") == 3


async def test_what_cannot_be_done_keeps_nothing_else_from_being_done() -> None:
    """A quota may forbid a replacement for hours. What was lost is fenced all the same, and people hear of it."""
    view = running_job()
    body = Notebook(rl_job(view.status), view.pods[2:])
    body.forbidden = CreatePod
    with pytest.raises(ExceptionGroup) as raised:
        await reconciler(body).reconcile()
    assert {type(error) for error in raised.value.exceptions} == {PermissionError}
    done = [action for kind, (_, action) in _actions(body)]
    assert any(isinstance(action, Relabel) for action in done)
    assert "FaultDetected" in [what.reason for kind, what in body.said if kind == "event"]


async def test_conflicts_that_last_are_not_a_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    body, waits = Notebook(rl_job()), list[float]()
    body.conflict = True
    looked_at = reconciler(body)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        body.conflict = len(waits) < 12
        if not body.conflict:
            raise asyncio.CancelledError

    monkeypatch.setattr(looked_at, "_sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await looked_at.run()
    assert waits[0] <= 0.02
    assert 0.5 <= waits[-1] <= 1.0


async def test_a_pod_that_may_not_be_made_fails_nothing_and_is_for_the_next_plan_to_answer() -> None:
    """With a quota used up, each fault was found up to 15 s late: so long the loop slept after a refusal."""
    view = running_job()
    body = Notebook(rl_job(view.status), view.pods[:-1])
    body.forbidden, body.error = CreatePod, CreationRefused("exceeded quota")
    looked_at = reconciler(body)
    looked_at._woken.clear()
    assert await looked_at.reconcile() is not None
    assert looked_at.view(body.stored).refused == {"rollout": "exceeded quota"}
    assert looked_at._woken.is_set()
    await looked_at.reconcile()
    await looked_at.reconcile()
    assert looked_at.view(body.stored).refused == {}, "there is a pause now, in which none is asked for"


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


async def test_nothing_is_kept_of_a_pod_that_is_gone() -> None:
    view = running_job()
    body = Notebook(rl_job(view.status), view.pods)
    looked_at = reconciler(body)
    looked_at.view(body.stored)
    gone = view.pods[-1]
    looked_at._prober._results.update({pod.uid: Probe(NOW, answered=True) for pod in view.pods})
    body._pods = view.pods[:-1]
    looked_at.view(body.stored)
    assert looked_at._prober.result(gone.uid) is None
    assert looked_at._prober.result(view.pods[0].uid) is not None


async def test_the_agents_of_the_pods_nodes_are_told_what_to_say_on_purpose_once_it_is_stored() -> None:
    view = running_job()
    uid = view.pods[0].uid
    target = InjectionTarget(pod=view.pods[0].name, uid=uid, deed=Means.STICK_EXPORTERS)
    injection = InjectionStatus(
        id="r1", stage=InjectionStage.STRIKING, targets=(target,), accepted_time=timestamp(NOW)
    )  # fmt: skip
    body = Notebook(rl_job(view.status), tuple(replace(pod, node="n1") for pod in view.pods))
    looked_at = reconciler(body)
    for stored, words in ((injection, {uid: "Stuck"}), (None, {})):
        body.stored = rl_job(view.status.model_copy(update={"injection": stored}))
        await looked_at.reconcile()
        told = looked_at._hub.nodes.take(NodeReport(node="n1")).pods
        assert {pod.uid: pod.as_if for pod in told if pod.as_if} == words


async def test_who_stands_aside_on_purpose_comes_back_knowing_nothing_but_what_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, clock = running_job(), SimpleNamespace(now=NOW)
    wanted = Request(id="r1", kind="lease").model_dump_json(by_alias=True)
    stored = rl_job(view.status, faultInjection={"mode": "Allowed"})
    metadata = stored.metadata.model_copy(update={"annotations": {ANNOTATION_INJECT: wanted}})
    body = Notebook(stored.model_copy(update={"metadata": metadata}), view.pods)
    hub = ControlHub(lambda: clock.now, lambda _: None)
    looked_at = Reconciler("j", body, hub, Prober(lambda: clock.now, lambda: None), lambda: clock.now)
    pod = PodIdentity("default", view.pods[0].name, view.pods[0].uid)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds * SECOND
        assert await hub.exchange(pod, said) is None, "nobody is there"

    said = view.reports[pod.uid].report
    hub.assign(pod.uid, Assignment(etag="a", role=Role.TRAINER))
    await hub.exchange(pod, said)
    monkeypatch.setattr(reconciling.asyncio, "sleep", sleep)
    outcome = await looked_at.reconcile()
    assert outcome is not None
    assert [what for kind, what in body.said if kind == "action"] == [], "no body is asked to do it"
    await looked_at._stand_aside(outcome)
    assert slept == [10.0]
    assert looked_at.view(body.stored).watching_since == clock.now
    assert hub.heard(pod.uid) is None
    await looked_at.reconcile()
    assert body.stored.status.injection is not None
    assert body.stored.status.injection.stage is InjectionStage.STRUCK


async def test_silence_is_looked_at_when_it_has_lasted_long_enough_and_no_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look twice a heartbeat alone would find it up to half a heartbeat late, twice: to be asked, and given up."""
    view, clock = running_job(), SimpleNamespace(now=NOW)
    spoken = {uid: replace(heard, at=NOW + 0.2 * SECOND) for uid, heard in view.reports.items()}
    hub = ControlHub(lambda: clock.now, lambda _: None)
    prober = Prober(lambda: clock.now, lambda: None)
    looked_at = Reconciler("j", Notebook(rl_job(view.status), view.pods), hub, prober, lambda: clock.now)
    looks: list[timedelta] = []

    def heard(uid: str) -> Heard | None:
        looks.append(clock.now - NOW)
        return spoken.get(uid)

    async def sleep(seconds: float) -> None:
        clock.now += seconds * SECOND
        if clock.now > NOW + 4 * SECOND:
            raise asyncio.CancelledError

    monkeypatch.setattr(hub, "heard", heard)
    monkeypatch.setattr(prober, "ask", lambda probe: None)
    monkeypatch.setattr(looked_at, "_sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await looked_at.run()
    assert {2.1 * SECOND, 3.1 * SECOND} <= set(looks), sorted(set(looks))
