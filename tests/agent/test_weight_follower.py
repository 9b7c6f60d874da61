"""A rollout's agent follows the managers' versions: over real UCX, from sources that stop half-way."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio
from aiohttp import web
from tests.weightsync.source_process import sealed

from robustrl.engines.adapter import EngineError
from robustrl.supervisor.managers_client import ManagersClient
from robustrl.supervisor.publisher import Publisher
from robustrl.supervisor.weight_follower import FINISH_ANYWAY, WeightFollower
from weightsync.source import KEPT_VERSIONS

pytest.importorskip("ucxx", reason="weights over UCX need the extra 'ucx'")
# UCXX stays with the event loop that it was first used in, whichever test that was.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

ROOT = Path(__file__).parents[2]
SEED, SIZE = 3, 5 << 20
CHUNKS_GIVEN = 5
"""By a source that then stops: fewer than half, so that a newer version is worth more than the rest."""


class Managers:
    """The part of the managers that says what is current, and the directory."""

    def __init__(self) -> None:
        self.current: dict[str, Any] = {}

    def announce(self, epoch: int, step: int, port: int) -> None:
        manifest, _ = sealed(SEED, SIZE, epoch, step)
        publisher = f"127.0.0.1:{port}"
        self.current = {"epoch": epoch, "step": step, "root": manifest.root, "publisher": publisher, "holders": []}

    async def newest(self, request: web.Request) -> web.Response:
        for _ in range(40):
            if self.current and f"{self.current['epoch']}.{self.current['step']}" != request.query["after"]:
                return web.json_response(self.current)
            await asyncio.sleep(0.05)
        return web.Response(status=204)

    async def hold(self, _request: web.Request) -> web.Response:
        return web.json_response({"holders": []})


class Engine:
    """Keeps what it was given."""

    def __init__(self) -> None:
        self.version, self.given = "", b""
        self.told = asyncio.Event()
        self.trouble: list[Exception] = []
        """What comes of the next tries to give it weights."""

    async def apply_weights(self, folder: Path, version: str) -> None:
        if self.trouble:
            raise self.trouble.pop()
        self.given, self.version = (folder / "model.safetensors").read_bytes(), version
        self.told.set()

    async def serves(self, version: str) -> None:
        while self.version != version:
            self.told.clear()
            await asyncio.wait_for(self.told.wait(), 30)


@pytest.fixture
def source() -> Iterator[Any]:
    """Starts sources; all are ended with the test."""
    processes: list[subprocess.Popen[str]] = []

    def begin(epoch: int, step: int, *fault: object) -> int:
        words = [str(word) for word in (SEED, SIZE, epoch, step, *fault)]
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/weightsync/source_process.py"), *words], stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'weightsync'}"},
        )  # fmt: skip
        processes.append(process)
        assert process.stdout
        return int(process.stdout.readline())

    yield begin
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest_asyncio.fixture(loop_scope="session")
async def followed(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[SimpleNamespace]:
    """A follower with an engine, and managers that have announced nothing."""
    managers, engine, client = Managers(), Engine(), ManagersClient()
    app = web.Application()
    app.router.add_get("/v1/versions/current", managers.newest)
    app.router.add_put("/v1/versions/{root}/holders", managers.hold)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    client.url = f"http://127.0.0.1:{unused_tcp_port}"
    publisher = Publisher(client, "127.0.0.1", 0, 256 * 1024)
    await publisher.start()
    follower = WeightFollower(client, publisher, tmp_path)
    lives: list[asyncio.Task[None]] = []

    def begin_life(engine: Engine) -> None:
        lives.append(asyncio.create_task(follower.run(cast(Any, engine))))

    async def end_life() -> None:
        lives[-1].cancel()
        await asyncio.gather(lives[-1], return_exceptions=True)
        follower.engine_lost()

    begin_life(engine)
    yield SimpleNamespace(
        managers=managers, engine=engine, follower=follower, begin_life=begin_life, end_life=end_life, folder=tmp_path
    )
    await end_life()
    follower.close()
    await (await publisher.ready()).close()
    await client.close()
    await runner.cleanup()


def mappings_of(folder: Path) -> int:
    """How many files of a folder this process has mapped, those included that are deleted."""
    return Path("/proc/self/maps").read_text().count(str(folder))


@pytest.mark.parametrize("epoch", [2, 3], ids=["same-epoch", "next-epoch"])
async def test_newer_version_takes_a_stalled_pulls_place_and_only_its_epochs_chunks_carry_over(
    followed: SimpleNamespace, source: Any, epoch: int
) -> None:
    followed.managers.announce(2, 7, source(2, 7, "stop", CHUNKS_GIVEN))
    await asyncio.sleep(1.0)
    assert followed.engine.version == "", "it waits for the rest"
    followed.managers.announce(epoch, 8, source(epoch, 8))
    await followed.engine.serves(f"{epoch}.8")
    _, data = sealed(SEED, SIZE, epoch, 8)
    assert followed.engine.given == bytes(data)
    skipped = followed.follower.metrics["weight_bytes_skipped_total"]
    if epoch == 2:
        assert 0 < skipped <= CHUNKS_GIVEN * 256 * 1024
    else:
        assert skipped == 0, "a partial of a fenced epoch is void"


async def test_unchanged_weights_of_the_next_step_are_not_sent_again(followed: SimpleNamespace, source: Any) -> None:
    followed.managers.announce(1, 1, source(1, 1))
    await followed.engine.serves("1.1")
    followed.managers.announce(1, 2, source(1, 2))
    await followed.engine.serves("1.2")
    metrics = followed.follower.metrics
    assert (metrics["weight_bytes_verified_total"], metrics["weight_bytes_skipped_total"]) == (SIZE, SIZE)
    assert (metrics["weight_syncs_total"], metrics["weight_strikes_total"]) == (2, 0)


async def test_memory_has_no_more_versions_than_are_served(followed: SimpleNamespace, source: Any) -> None:
    """However late the garbage collector comes: a version may be as large as all the memory that is left."""
    gc.disable()
    try:
        for step in range(1, 7):
            followed.managers.announce(1, step, source(1, step))
            await followed.engine.serves(f"1.{step}")
        assert mappings_of(followed.folder) <= KEPT_VERSIONS
    finally:
        gc.enable()


async def test_what_was_pulled_while_there_was_no_engine_is_given_to_the_next_and_not_pulled_again(
    followed: SimpleNamespace, source: Any
) -> None:
    followed.managers.announce(1, 1, source(1, 1))
    while followed.follower._underway is None:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    await followed.end_life()
    await asyncio.wait({followed.follower._underway.task}, timeout=30)
    restarted = Engine()
    followed.begin_life(restarted)
    await restarted.serves("1.1")
    assert followed.follower.metrics["weight_syncs_total"] == 1


@pytest.mark.parametrize("trouble", [EngineError("busy"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text")])
async def test_an_engine_that_refuses_its_first_weights_is_given_them_again(
    followed: SimpleNamespace, source: Any, trouble: Exception
) -> None:
    followed.managers.announce(1, 1, source(1, 1))
    await followed.engine.serves("1.1")
    await followed.end_life()
    restarted = Engine()
    restarted.trouble = [trouble]
    followed.begin_life(restarted)
    await restarted.serves("1.1")


async def test_names_that_are_no_addresses_do_not_keep_weights_away(followed: SimpleNamespace, source: Any) -> None:
    followed.managers.announce(1, 1, source(1, 1))
    followed.managers.current["holders"] = ["nobody", "10.0.0.1:99999", ":1"]
    await followed.engine.serves("1.1")


@pytest.mark.parametrize("newest", [(3, 9), (2, 9)], ids=["next-epoch", "two-versions-on"])
async def test_a_pull_past_its_middle_ends_when_nobody_holds_its_version_any_more(
    followed: SimpleNamespace, source: Any, newest: tuple[int, int]
) -> None:
    followed.managers.announce(2, 7, source(2, 7, "stop", 15))
    while await followed.follower._part_here() <= FINISH_ANYWAY:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    followed.managers.announce(2, 8, source(2, 8))
    await asyncio.sleep(0.5)
    assert followed.engine.version == "", "more than half is here"
    followed.managers.announce(*newest, source(*newest))
    async with asyncio.timeout(10):  # a source that hangs is waited for longer
        await followed.engine.serves(f"{newest[0]}.{newest[1]}")


async def test_weights_for_which_there_is_no_room_come_when_there_is(followed: SimpleNamespace, source: Any) -> None:
    port = source(1, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, limits[1]))
    try:
        followed.managers.announce(1, 1, port)
        await asyncio.sleep(1.0)
        assert list(followed.folder.glob("*/*.safetensors")) == [], "nothing is begun that there is no room for"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await followed.engine.serves("1.1")


async def test_two_versions_at_a_time_take_room(followed: SimpleNamespace, source: Any) -> None:
    for step in (1, 2, 3):
        followed.managers.announce(1, step, source(1, step))
        await followed.engine.serves(f"1.{step}")
    assert sorted(folder.name for folder in followed.folder.iterdir() if folder.is_dir()) == ["1.2", "1.3"]
