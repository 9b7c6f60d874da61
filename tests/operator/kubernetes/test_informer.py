"""What the cache of pods holds, whatever arrives in which order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from robustrl_operator.kubernetes import informer as informer_module
from robustrl_operator.kubernetes.informer import Informer


def pod(uid: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid, "resourceVersion": str(version), "labels": labels}}


class Server:
    """The part of lightkube's client that is used here: each list as it was at its version."""

    def __init__(self, *listed: dict[str, Any], version: int) -> None:
        self.listed, self.version = listed, version
        self.answer, self.asked = asyncio.Event(), asyncio.Event()
        self.lists = 0

    def list(self, _kind: Any, **_scope: Any) -> Any:
        self.lists += 1
        return Listing(self)

    async def watch(self, _kind: Any, **_scope: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


class Refusing(Server):
    """It lists, and refuses every watch."""

    async def watch(self, _kind: Any, **_scope: Any) -> AsyncIterator[Any]:
        raise PermissionError("too many requests")
        yield


class Listing:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.resourceVersion = str(server.version)

    async def __aiter__(self) -> AsyncIterator[Any]:
        self._server.asked.set()
        await self._server.answer.wait()
        for obj in self._server.listed:
            yield SimpleNamespace(metadata=SimpleNamespace(uid=obj["metadata"]["uid"]), to_dict=obj.copy)


@contextlib.asynccontextmanager
async def running(server: Server) -> AsyncIterator[tuple[Informer, list[str]]]:
    client: Any = server
    changed: list[str] = []
    kind: Any = SimpleNamespace(__name__="Pod")
    informer = Informer(client, kind, lambda obj: changed.append(obj["metadata"]["uid"]))
    task = asyncio.create_task(informer.run())
    try:
        yield informer, changed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_was_written_while_a_list_was_on_its_way_is_not_forgotten() -> None:
    """A pod that was just made would be missing from the next plan, which would take it for lost."""
    server = Server(pod("old", 5), pod("relabelled", 6, role="rollout"), version=10)
    async with running(server) as (informer, changed):
        await server.asked.wait()
        informer.take(pod("made", 11))
        informer.take(pod("relabelled", 12, role="trainer"))
        informer.take(pod("gone", 9))
        changed.clear()
        server.answer.set()
        async with asyncio.timeout(5):
            while "old" not in changed:  # noqa: ASYNC110 - the list has no other end
                await asyncio.sleep(0)
    assert sorted(informer.objects) == ["made", "old", "relabelled"]
    assert informer.objects["relabelled"]["metadata"]["labels"] == {"role": "trainer"}
    assert sorted(changed) == ["gone", "old"]


async def test_a_server_that_refuses_watches_is_not_asked_for_lists_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(informer_module.random, "uniform", lambda _low, _high: 1.0)
    server = Refusing(version=10)
    server.answer.set()
    async with running(server):
        await asyncio.sleep(1.0)
    assert server.lists <= 3, "after 0.2 s, 0.4 s and 0.8 s"


async def test_a_list_that_does_not_come_in_time_is_told_by_the_errors_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(informer_module, "LIST_SECONDS", 0.01)
    server = Server(version=1)
    async with running(server), asyncio.timeout(5):
        while server.lists < 2:  # noqa: ASYNC110 - the second follows once the first has failed
            await asyncio.sleep(0.01)
    assert "Pod: TimeoutError; again in" in caplog.text
