"""Versions that a training process hands over are sealed and announced beside what the agent does."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from robustrl.supervisor import publisher as module
from robustrl.supervisor.managers_client import ManagersAway
from robustrl.supervisor.publisher import Publisher
from robustrl_api.version import Version
from weightsync import Manifest

pytest.importorskip("ucxx", reason="weights over UCX need the extra 'ucx'")
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]


class Managers:
    def __init__(self) -> None:
        self.announced: list[str] = []
        self.away = False
        self.told = asyncio.Event()

    async def call(self, _method: str, _path: str, body: dict[str, Any]) -> None:
        self.told.set()
        if self.away:
            raise ManagersAway("for now")
        self.announced.append(f"{body['epoch']}.{body['step']}")

    async def heard_of(self, version: str) -> None:
        while version not in self.announced:
            self.told.clear()
            await asyncio.wait_for(self.told.wait(), 30)


@pytest_asyncio.fixture(loop_scope="session")
async def managers() -> Managers:
    return Managers()


@pytest_asyncio.fixture(loop_scope="session")
async def publisher(managers: Managers) -> AsyncIterator[Publisher]:
    made = Publisher(cast(Any, managers), "127.0.0.1", 0, 256 * 1024)
    await made.start()
    yield made
    await (await made.ready()).close()


def written(folder: Path, step: int) -> str:
    path = folder / f"{step}.safetensors"
    path.write_bytes(bytes([step]) * 4096)
    return str(path)


async def test_sealing_does_not_hold_the_agent_up(
    publisher: Publisher, managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    class Watched(Manifest):
        @classmethod
        def of(cls, *arguments: Any, **fields: Any) -> Manifest:
            threads.append(threading.current_thread())
            return Manifest.of(*arguments, **fields)

    monkeypatch.setattr(module, "Manifest", Watched)
    publisher.begin(Version(1, 1), written(tmp_path, 1))
    await managers.heard_of("1.1")
    assert threads != [threading.main_thread()]


async def test_of_versions_that_come_faster_than_they_are_sealed_the_newest_is_announced(
    publisher: Publisher, managers: Managers, tmp_path: Path
) -> None:
    for step in (1, 2, 3):
        publisher.begin(Version(1, step), path := written(tmp_path, step))
        await asyncio.sleep(0)
        os.unlink(path)  # the training process keeps a few only
    await managers.heard_of("1.3")
    assert managers.announced == ["1.3"]
    assert [held.manifest.step for held in (await publisher.ready()).held.values()] == [3]


async def test_managers_that_are_away_hear_of_the_newest_when_they_are_back(
    publisher: Publisher, managers: Managers, tmp_path: Path
) -> None:
    managers.away = True
    publisher.begin(Version(1, 1), written(tmp_path, 1))
    await managers.told.wait()
    publisher.begin(Version(2, 1), written(tmp_path, 2))
    managers.away = False
    await managers.heard_of("2.1")
    assert managers.announced == ["2.1"]


async def test_managers_that_are_away_for_long_hear_of_the_weights_all_the_same(
    publisher: Publisher, managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no step runs ahead of the weights, the trainers' next batch waits for them: nobody else will announce."""
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.0, 0.0))
    managers.away, tries = True, 0
    publisher.begin(Version(1, 1), written(tmp_path, 1))
    while tries < 20:
        managers.told.clear()
        await managers.told.wait()
        tries += 1
    managers.away = False
    await managers.heard_of("1.1")
