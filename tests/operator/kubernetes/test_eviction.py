"""A trainer's node that is drained on purpose: the operator evicts the job's own pod, and harms no node."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
from lightkube import ApiError
from tests.operator.build import NOW
from tests.operator.kubernetes.fake_api import FakeApi
from tests.operator.kubernetes.test_body import knowing, refusal
from tests.operator.kubernetes.test_jobs import stored

from robustrl_api.control import Struck
from robustrl_api.job import RLJob
from robustrl_api.names import LABEL_JOB
from robustrl_operator.faults.kind import Means
from robustrl_operator.kubernetes.api_client import async_client
from robustrl_operator.kubernetes.body import KubernetesBody
from robustrl_operator.plan import HarmMachine
from robustrl_operator.view import PodView

PATH = "/api/v1/namespaces/ns/pods/j-trainer-1"
OWNER = {"apiVersion": "robustrl.dev/v1alpha1", "kind": "RLJob", "name": "j", "uid": "u1"}
POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "j-trainer-1", "namespace": "ns", "uid": "p1", "labels": {LABEL_JOB: "j"},
                 "creationTimestamp": "2026-11-21T08:00:00Z", "ownerReferences": [OWNER]},
}  # fmt: skip
JOB = RLJob.model_validate(stored(1))


def drain(uid: str = "p1", request: str = "r1") -> HarmMachine:
    return HarmMachine("j-trainer-1", uid, Means.DRAIN, request)


@pytest.fixture
def api(empty_api: FakeApi) -> FakeApi:
    empty_api.put(PATH, POD)
    return empty_api


async def test_the_pod_that_is_meant_is_evicted_once_and_no_namesake(api: FakeApi) -> None:
    body = KubernetesBody(async_client(), "https://operator", "ca", lambda: NOW)
    await body.carry_out(JOB, drain("p0"))
    assert PATH in api.objects, "it was made after the one that is meant"
    await body.carry_out(JOB, drain())
    assert PATH not in api.objects
    assert {path for _, _, path in api.writes} == {f"{PATH}/eviction"}
    await body.carry_out(JOB, drain())


def seen(body: KubernetesBody) -> PodView:
    """The job's pod as the next plan sees it."""
    informers: Any = SimpleNamespace(objects={"p1": deepcopy(POD)}), SimpleNamespace(objects={})
    body.pod_informer, body.node_informer = informers
    (pod,) = body.pods("ns/j")
    return pod


@pytest.mark.parametrize("code", [403, 429, 500], ids=["no right to", "kept by a budget", "kept by two budgets"])
async def test_a_refusal_is_noted_for_the_request_and_not_tried_again(code: int) -> None:
    body, job = knowing(refusal(code))
    await body.carry_out(job, drain())
    assert seen(body).struck == Struck(id="r1", error="its eviction was refused: no")
    body.forget_job("ns/j", "u1")
    body.take_job(stored(2))
    assert seen(body).struck is None


async def test_a_server_that_is_away_says_nothing_of_it() -> None:
    body, job = knowing(refusal(503))
    with pytest.raises(ApiError):
        await body.carry_out(job, drain())
    assert seen(body).struck is None
