"""What the operator does when the API server refuses, is slow, or has lost what is spoken of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import httpx2
import pytest
from lightkube import ApiError
from lightkube.resources.core_v1 import Node
from tests.operator.build import NOW
from tests.operator.kubernetes.test_jobs import Server, body_of, stored

from robustrl_api.job import RLJob
from robustrl_api.names import EventReason, Role
from robustrl_operator.control.body import CreationRefused, StatusConflict, StatusRefused
from robustrl_operator.kubernetes.body import KubernetesBody
from robustrl_operator.kubernetes.informer import Informer
from robustrl_operator.kubernetes.predecessor import SilentNode
from robustrl_operator.plan import CreatePod, DeleteJob, Event

NAMED = {"name": "j", "kind": "rljobs"}


def refusal(code: int, details: dict[str, str] | None = None) -> ApiError:
    body = {"kind": "Status", "code": code, "message": "no", "details": details or {}}
    return ApiError(response=httpx2.Response(code, json=body))


class Refuses(Server):
    """Answers each write with the same error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def patch(self, *_: Any, **__: Any) -> Any:
        raise self.error

    async def create(self, *_: Any, **__: Any) -> Any:
        raise self.error

    async def delete(self, *_: Any, **__: Any) -> None:
        raise self.error


def knowing(error: Exception) -> tuple[KubernetesBody, RLJob]:
    body = body_of(Refuses(error))
    body.take_job(stored(1))
    job = body.job("ns/j")
    assert job is not None
    return body, job


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        pytest.param(refusal(404, NAMED), True, id="there is no such job"),
        pytest.param(refusal(404), False, id="the server has just started and knows no RLJobs yet"),
        pytest.param(refusal(409, NAMED), False, id="it has changed"),
    ],
)
async def test_a_job_whose_deletion_was_missed_is_forgotten(error: ApiError, gone: bool) -> None:
    """Otherwise it is tried for ever to write its status, and pods are made that nobody owns."""
    body, job = knowing(error)
    with pytest.raises(StatusConflict):
        await body.write_status(job, job.status)
    assert (body.job("ns/j") is None) is gone


async def test_a_status_that_does_not_fit_the_stored_crd_is_refused_for_good() -> None:
    body, job = knowing(refusal(422))
    with pytest.raises(StatusRefused):
        await body.write_status(job, job.status)


async def test_an_ended_job_whose_deletion_was_missed_is_forgotten() -> None:
    body, job = knowing(refusal(404, NAMED))
    await body.carry_out(job, DeleteJob())
    assert body.job("ns/j") is None


async def test_what_is_heard_late_of_a_deleted_job_does_not_end_its_namesake() -> None:
    body = body_of(Server())
    body.take_job(stored(1))
    body.forget_job("ns/j", "u0")
    assert body.job("ns/j") is not None
    body.forget_job("ns/j", "u1")
    assert body.job("ns/j") is None


async def test_a_status_that_is_answered_after_the_job_was_deleted_brings_it_not_back() -> None:
    class Deletes(Server):
        async def patch(self, *_: Any, **__: Any) -> Any:
            body.forget_job("ns/j", "u1")
            return await self.get(None, "j", namespace="ns")

    body = body_of(Deletes())
    body.take_job(stored(1))
    job = RLJob.model_validate(stored(1))
    await body.write_status(job, job.status)
    assert body.job("ns/j") is None


@pytest.mark.parametrize("error", [refusal(403), httpx2.ConnectTimeout("slow")], ids=["forbidden", "no answer"])
async def test_an_event_that_cannot_be_published_is_no_reason_to_stop(error: Exception) -> None:
    body, job = knowing(error)
    await body.publish(job, Event(EventReason.STARTED, "never"))


class Namespace(Server):
    """Counts how often the CA was put into it."""

    cas = 0

    async def apply(self, _obj: Any, force: bool) -> None:
        self.cas += 1

    async def create(self, obj: Any) -> Any:
        raise refusal(409)


def later(clock: dict[str, Any], _job: dict[str, Any]) -> None:
    clock["now"] = NOW + timedelta(minutes=2)


def made_anew(_clock: dict[str, Any], job: dict[str, Any]) -> None:
    job["metadata"]["uid"] = "u2"


@pytest.mark.parametrize(("change", "cas"), [(lambda *_: None, 1), (later, 2), (made_anew, 2)])
async def test_pods_find_the_ca_also_in_a_namespace_that_was_made_anew(
    change: Callable[[dict[str, Any], dict[str, Any]], None], cas: int
) -> None:
    """Without it they stay in ContainerCreating for ever."""
    server, clock, job = Namespace(), {"now": NOW}, stored(1)
    client: Any = server
    body = KubernetesBody(client, "https://operator", "ca", lambda: clock["now"])
    for number in range(2):
        await body.carry_out(RLJob.model_validate(job), CreatePod(f"j-trainer-{number}", Role.TRAINER))
        change(clock, job)
    assert server.cas == cas


class Quota(Namespace):
    def __init__(self, code: int) -> None:
        self._code = code

    async def create(self, obj: Any) -> Any:
        raise refusal(self._code)


@pytest.mark.parametrize(("code", "raised"), [(403, CreationRefused), (422, CreationRefused), (500, ApiError)])
async def test_a_pod_that_may_not_be_made_is_told_from_a_server_that_cannot(code: int, raised: type[Exception]) -> None:
    client: Any = Quota(code)
    body = KubernetesBody(client, "https://operator", "ca", lambda: NOW)
    with pytest.raises(raised):
        await body.carry_out(RLJob.model_validate(stored(1)), CreatePod("j-trainer-1", Role.TRAINER))


async def test_the_node_of_an_operator_that_fell_silent_is_known_for_it() -> None:
    body = body_of(Server())
    body.node_informer = Informer(cast(Any, Server()), Node, lambda _node: None)
    for name in ("n1", "n2"):
        body.node_informer.take({"metadata": {"name": name, "uid": name}})
    assert [node.silent_since for node in body.nodes().values()] == [None, None]
    body.silent_node = SilentNode("n1", NOW)
    assert {node.name: node.silent_since for node in body.nodes().values()} == {"n1": NOW, "n2": None}
    body.silent_node = SilentNode("gone since", NOW)
    assert set(body.nodes()) == {"n1", "n2"}
