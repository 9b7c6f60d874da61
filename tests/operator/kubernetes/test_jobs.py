"""Which RLJobs the operator takes on, and what it does about one that it cannot read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.operator.build import NOW

from robustrl_api.job import RLJob
from robustrl_api.names import EventReason, Role
from robustrl_operator.kubernetes import jobs as jobs_module
from robustrl_operator.kubernetes.body import KubernetesBody
from robustrl_operator.kubernetes.jobs import Jobs
from robustrl_operator.kubernetes.lease import LeaseLost
from robustrl_operator.kubernetes.pod_factory import build_pod
from robustrl_operator.plan import CreatePod, DeleteJob, Event

STORED: dict[str, Any] = yaml.safe_load("""
apiVersion: robustrl.dev/v1alpha1
kind: RLJob
metadata: {name: j, namespace: ns, uid: u1, resourceVersion: "1"}
spec:
  steps: 10
  data: {prompts: "tasks:prompts", rollout: "tasks:rollout"}
  trainer: {template: {spec: {containers: [{name: t, image: i, command: [python, train.py]}]}}}
  rollout: {engine: {model: "model:build"}}
  manager: {ledger: /ledger, template: {spec: {containers: [{name: m, image: i}]}}}
""")


class Idle:
    """A reconciler that only waits."""

    def __init__(self, key: str, *_: object) -> None:
        self.key = key

    async def run(self) -> None:
        await asyncio.Event().wait()

    def wake(self) -> None:
        pass


class Server:
    """The part of lightkube's client that is used here; keeps what it was told."""

    def __init__(self, uid: str = "u1") -> None:
        self.uid = uid
        self.created: list[Any] = []
        self.deleted: list[tuple[str, str, str]] = []

    async def create(self, obj: Any) -> Any:
        self.created.append(obj)
        return obj

    async def get(self, _kind: Any, name: str, *, namespace: str) -> Any:
        stored = {"metadata": {"name": name, "namespace": namespace, "uid": self.uid}}
        return SimpleNamespace(to_dict=lambda: stored)

    async def delete(self, _kind: Any, name: str, *, namespace: str, cascade: Any) -> None:
        self.deleted.append((namespace, name, cascade.value))


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(jobs_module, "Reconciler", Idle)
    return Server()


def body_of(server: Server) -> KubernetesBody:
    client: Any = server
    return KubernetesBody(client, "https://operator", "ca", lambda: NOW)


@pytest.fixture
async def jobs(server: Server) -> AsyncIterator[Jobs]:
    taken = Jobs(lambda: NOW)
    taken.attach(body_of(server))
    yield taken
    await taken.close()


def stored(version: int, **spec: Any) -> dict[str, Any]:
    obj = deepcopy(STORED)
    obj["metadata"]["resourceVersion"] = str(version)
    obj["spec"].update(spec)
    return obj


def keys(jobs: Jobs) -> list[str]:
    return [reconciler.key for reconciler in jobs.reconcilers]


@pytest.mark.parametrize(
    ("spec", "taken"),
    [({}, True), ({"managedBy": "robustrl.dev/operator"}, True), ({"managedBy": "kueue.x-k8s.io/multikueue"}, False)],
)
async def test_jobs_of_another_controller_are_left_to_it(jobs: Jobs, spec: dict[str, Any], taken: bool) -> None:
    jobs.seen(stored(1, **spec))
    assert keys(jobs) == (["ns/j"] if taken else [])


async def test_what_is_wrong_with_an_unreadable_object_is_said_once(jobs: Jobs, server: Server) -> None:
    for version in (1, 2, 3):
        jobs.seen(stored(version, steps="many"))
        await asyncio.sleep(0)
    assert keys(jobs) == []
    (event,) = server.created
    assert (event.reason, event.type, event.involvedObject.uid) == ("Invalid", "Warning", "u1")
    assert "spec.steps" in event.message


async def test_an_object_that_becomes_unreadable_is_left_alone_until_it_is_mended(jobs: Jobs, server: Server) -> None:
    jobs.seen(stored(1))
    jobs.seen(stored(2, mode="Turbo"))
    await asyncio.sleep(0)
    assert keys(jobs) == []
    jobs.seen(stored(3))
    await asyncio.sleep(0)
    assert keys(jobs) == ["ns/j"], "the end of the reconciler before it does not take the new one away"
    jobs.seen(stored(4, mode="Turbo"))
    await asyncio.sleep(0)
    assert [event.reason for event in server.created] == ["Invalid", "Invalid"]


async def test_who_may_not_act_sends_nothing(server: Server) -> None:
    client: Any = server
    body = KubernetesBody(client, "https://operator", "ca", lambda: NOW, may_act=lambda: False)
    body.take_job(stored(1))
    job = RLJob.model_validate(stored(1))
    for effect in (
        body.carry_out(job, DeleteJob()),
        body.write_status(job, job.status),
        body.publish(job, Event(EventReason.STARTED, "never")),
    ):
        with pytest.raises(LeaseLost):
            await effect
    assert (server.created, server.deleted) == ([], [])


async def test_jobs_that_are_stopped_take_nothing_on(jobs: Jobs) -> None:
    jobs.seen(stored(1))
    jobs.stop()
    jobs.seen(stored(2, steps=20))
    await jobs.close()
    assert keys(jobs) == []


@pytest.mark.parametrize(("uid", "deleted"), [("u1", [("ns", "j", "Background")]), ("u2", [])])
async def test_only_the_job_itself_is_deleted_not_its_namesake(uid: str, deleted: list[tuple[str, str, str]]) -> None:
    server = Server(uid)
    await body_of(server).carry_out(RLJob.model_validate(stored(1)), DeleteJob())
    assert server.deleted == deleted


async def test_pods_of_a_deleted_namesake_are_not_the_jobs(server: Server) -> None:
    """They are still there for seconds after `kubectl delete` and `kubectl apply`, with the same names and labels."""
    body = body_of(server)
    body.take_job(stored(1))
    before = {**stored(1), "metadata": {**STORED["metadata"], "uid": "u0"}}
    pods: dict[str, Any] = {}
    for number, owner in enumerate((before, stored(1))):
        made = build_pod(RLJob.model_validate(owner), CreatePod(f"j-trainer-{number}", Role.TRAINER), "https://o")
        pods[f"uid-{number}"] = {**made, "metadata": {**made["metadata"], "uid": f"uid-{number}"}}
    informer: Any = SimpleNamespace(objects=pods)
    nobody: Any = SimpleNamespace(objects={})
    body.pod_informer, body.node_informer = informer, nobody
    assert [pod.name for pod in body.pods("ns/j")] == ["j-trainer-1"]


async def test_a_job_made_anew_in_the_moment_its_namesake_ends_is_taken_on(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ends(Idle):
        """Ends as its job is gone, and the new one is seen before anybody notices."""

        async def run(self) -> None:
            monkeypatch.setattr(jobs_module, "Reconciler", Idle)
            asyncio.get_running_loop().call_soon(jobs.seen, stored(3))

    monkeypatch.setattr(jobs_module, "Reconciler", Ends)
    jobs.seen(stored(1))
    await asyncio.sleep(0.01)
    assert [type(reconciler) for reconciler in jobs.reconcilers] == [Idle]
