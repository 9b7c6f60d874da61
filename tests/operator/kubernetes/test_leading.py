"""An operator that loses its lease stops acting, follows, and leads again in the same process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from tests.operator.kubernetes.fake_api import FakeApi

from robustrl_operator.kubernetes.lease import DURATION_SECONDS, RENEW_DEADLINE_SECONDS, RETRY_SECONDS
from robustrl_operator.kubernetes.main import Operator
from robustrl_operator.kubernetes.settings import Settings

LEASE = "/apis/coordination.k8s.io/v1/namespaces/robustrl-system/leases/robustrl-operator"
JOB = "/apis/robustrl.dev/v1alpha1/namespaces/ns/rljobs/j"
PODS = "/api/v1/namespaces/ns/pods"
SELF = "/api/v1/namespaces/robustrl-system/pods/operator-a"
STORED: dict[str, Any] = yaml.safe_load("""
apiVersion: robustrl.dev/v1alpha1
kind: RLJob
metadata: {name: j, namespace: ns}
spec:
  steps: 10
  data: {prompts: "tasks:prompts", rollout: "tasks:rollout"}
  trainer: {replicas: 1, template: {spec: {containers: [{name: t, image: i, command: [python, train.py]}]}}}
  rollout: {replicas: 2, minReplicas: 1, engine: {model: "model:build"}}
  manager: {ledger: /ledger, template: {spec: {containers: [{name: m, image: i}]}}}
""")
WAIT_SECONDS = 20.0


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


SETTINGS = Settings("robustrl-system", "", "robustrl-operator", free_port(), free_port(), pod="operator-a")


@pytest.fixture
def api(empty_api: FakeApi) -> FakeApi:
    empty_api.put(SELF, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator-a"}})
    empty_api.put("/api/v1/namespaces/ns", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    empty_api.put(JOB, STORED)
    return empty_api


@pytest_asyncio.fixture
async def operator(api: FakeApi) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(Operator(SETTINGS).run())
    await until(lambda: len(api.under(PODS)) == 4, "the job's pods")
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)


def take(api: FakeApi, holder: str) -> None:
    """Write somebody else into the lease, as if it had been renewed just now."""
    lease = api.objects[LEASE]
    lease["spec"] |= {"holderIdentity": holder, "renewTime": f"2026-01-01T00:00:00.{time.monotonic_ns() % 10**6:06}Z"}
    api.put(LEASE, lease)


def holder(api: FakeApi) -> str:
    return str(api.objects[LEASE]["spec"]["holderIdentity"])


def written_since(api: FakeApi, moment: float) -> list[tuple[str, str]]:
    return [(method, path) for at, method, path in api.writes if at > moment]


async def answers(port: int, tls: bool) -> bool:
    url = f"http{'s' if tls else ''}://127.0.0.1:{port}/metrics"
    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False):
            return True
    except aiohttp.ClientError:
        return False


async def metrics() -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{SETTINGS.http_port}/metrics") as page,
    ):
        return await page.text()


async def test_whose_lease_is_taken_stops_acting_and_leads_again_later(
    api: FakeApi, operator: asyncio.Task[None]
) -> None:
    assert await answers(SETTINGS.control_port, tls=True)
    assert 'robustrl_plans_total{job="ns/j"}' in await metrics()
    take(api, "thief")
    await asyncio.sleep(2 * RETRY_SECONDS)
    lost = time.monotonic()
    gone = api.under(PODS)[0]["metadata"]["name"]
    api.remove(f"{PODS}/{gone}")
    # What another leader decides meanwhile is not seen by who follows.
    job = api.objects[JOB]
    job["status"] |= {"epoch": 7, "serial": 40}
    api.put(JOB, job)
    for _ in range(4):
        await asyncio.sleep(0.5)
        take(api, "thief")
    assert written_since(api, lost) == [], "it acted without the lease"
    assert not await answers(SETTINGS.control_port, tls=True)
    assert "ns/j" not in await metrics(), "who follows knows nothing of jobs"
    assert not operator.done()

    take(api, "")
    await until(lambda: len(api.under(PODS)) == 4, "the pod that is missing")
    assert holder(api) == "operator-a"
    assert f"{PODS}/{gone}" not in api.objects
    assert api.objects[JOB]["status"]["serial"] == 41, "it went on from what the other leader had stored"
    assert api.objects[JOB]["status"]["epoch"] >= 7
    assert await answers(SETTINGS.control_port, tls=True)
    assert 'robustrl_plans_total{job="ns/j"}' in await metrics()
    assert not operator.done()


async def test_who_cannot_reach_the_api_server_stops_acting_before_others_may_begin(
    api: FakeApi, operator: asyncio.Task[None]
) -> None:
    api.away = True
    # The watch still tells of it, so that an effect is in flight when the deadline comes.
    api.remove(f"{PODS}/{api.under(PODS)[0]['metadata']['name']}")
    await asyncio.sleep(RENEW_DEADLINE_SECONDS + 0.3)
    assert not await answers(SETTINGS.control_port, tls=True)
    assert not operator.done()
    assert len(api.held) > 0, "nothing was in flight"
    take(api, "thief")
    back = time.monotonic()
    api.away = False
    await asyncio.sleep(1.0)
    assert [path for _, path in written_since(api, back) if not path.startswith(LEASE)] == []
    assert holder(api) == "thief"
    await until(lambda: holder(api) == "operator-a", "its lease", DURATION_SECONDS + WAIT_SECONDS)
    await until(lambda: len(api.under(PODS)) == 4, "the pod that is missing")
    assert not operator.done()


async def test_it_can_lead_many_times(api: FakeApi, operator: asyncio.Task[None]) -> None:
    before = tasks()
    for _ in range(3):
        take(api, "thief")
        await asyncio.sleep(2 * RETRY_SECONDS)
        api.remove(f"{PODS}/{api.under(PODS)[0]['metadata']['name']}")
        take(api, "")
        await until(lambda: len(api.under(PODS)) == 4, "the pod that is missing")
    await until(lambda: tasks() == before, "each term ends what it began")
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(operator, WAIT_SECONDS)
    assert holder(api) == "", "a leader that is told to end gives the lease back, in its fourth term too"


def tasks() -> list[str]:
    """What runs in this process beside the API server's and the caller's connections."""
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    names = [coroutine.__qualname__ for coroutine in coroutines if coroutine is not None]
    return sorted(name for name in names if not name.startswith(("RequestHandler", "worker")))
