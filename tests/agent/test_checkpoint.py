"""Checkpoints: complete or absent, checked wherever they come from, found at the nearest place that has a good one."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web

from robustrl.checkpoint import archive as archiving
from robustrl.checkpoint import fetch
from robustrl.checkpoint import folder as folders
from robustrl.checkpoint.archive import Archive
from robustrl.checkpoint.fetch import Found, NoCopy, Wanted, obtain
from robustrl.checkpoint.folder import MANIFEST, BadCopy, Manifest
from robustrl.checkpoint.keeping import Keeping
from robustrl.checkpoint.refusal import Refusal
from robustrl.checkpoint.shelf import Shelf
from robustrl.supervisor.http import AgentEndpoint
from robustrl.supervisor.state import PodState
from robustrl_api.control import Peer
from robustrl_api.names import Role
from robustrl_api.version import Version

V = Version(2, 7)
Serve = Callable[[Shelf], Awaitable[Peer]]


def made(shelf: Shelf, version: Version = V, rank: int = 0, content: bytes = b"weights") -> str:
    """A checkpoint on a shelf; its root digest."""
    path = shelf.folder(version, rank)
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(content)
    (path / "rng").write_bytes(b"rng")
    return folders.seal(path).root


def damage(shelf: Shelf, version: Version = V, rank: int = 0) -> None:
    """One bit, the size unchanged."""
    path = shelf.folder(version, rank) / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


@pytest.fixture
def memory(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "memory", keep=2)


@pytest.fixture
def storage(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "storage", keep=3)


async def always(seconds: float) -> bool:
    return True


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves shelves as other pods' agents do."""
    endpoints: list[AgentEndpoint] = []

    async def begin(shelf: Shelf) -> Peer:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        name = f"peer-{len(endpoints)}"
        keeping = Keeping(shelf)
        endpoint = AgentEndpoint(PodState(name, Role.TRAINER), shelf, keeping, "127.0.0.1", port, always)
        await endpoint.start()
        endpoints.append(endpoint)
        return Peer(pod=name, role=Role.TRAINER, address="127.0.0.1", agent_port=port, rank=len(endpoints))

    yield begin
    for endpoint in endpoints:
        await endpoint.close()


def content(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


# The folder.


def test_sealed_folder_verifies(memory: Shelf) -> None:
    root = made(memory)
    assert folders.verify(memory.folder(V, 0), frozenset({root})).root == root


def flip(path: Path) -> None:
    data = bytearray((path / "model.safetensors").read_bytes())
    data[0] ^= 1
    (path / "model.safetensors").write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped bit": flip,
    "cut short": lambda path: (path / "model.safetensors").write_bytes(b"w"),
    "file missing": lambda path: (path / "rng").unlink(),
    "manifest missing": lambda path: (path / MANIFEST).unlink(),
    "manifest garbled": lambda path: (path / MANIFEST).write_text("{"),
    "manifest no text": lambda path: (path / MANIFEST).write_bytes(b'[["\xff", 1, "00"]]'),
    "manifest of endless files": lambda path: (path / MANIFEST).write_text('[["a", 1e999, "00"]]'),
    "file that cannot be read": lambda path: ((path / "rng").unlink(), (path / "rng").mkdir()),
    "manifest of another": lambda path: (path / MANIFEST).write_text(Manifest(()).to_json()),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(memory: Shelf, name: str) -> None:
    root = made(memory)
    DAMAGES[name](memory.folder(V, 0))
    with pytest.raises(BadCopy):
        folders.verify(memory.folder(V, 0), frozenset({root}))


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "", MANIFEST])
def test_manifest_cannot_name_a_path_out_of_the_folder(name: str) -> None:
    with pytest.raises(BadCopy, match="no plain file name"):
        Manifest.from_json(f'[["{name}", 1, "00"]]')


def test_copy_is_complete_or_absent(memory: Shelf, storage: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    root = made(memory)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(folders, "put_in_place", fails)
        with pytest.raises(OSError, match="No space"):
            folders.copy(memory.folder(V, 0), storage.folder(V, 0))
    assert storage.copies(V) == []
    folders.copy(memory.folder(V, 0), storage.folder(V, 0))
    folders.verify(storage.folder(V, 0), frozenset({root}))


def test_a_copy_is_on_the_disk_with_every_name_that_leads_to_it(
    memory: Shelf, storage: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server that loses its power forgets the names of files in folders that were not synchronized."""
    made(memory)
    kept: set[int] = set()
    monkeypatch.setattr(folders.os, "fsync", lambda descriptor: kept.add(os.fstat(descriptor).st_ino))
    target = storage.folder(V, 0)
    folders.copy(memory.folder(V, 0), target)
    for path in (*target.iterdir(), target, target.parent, storage.root):
        assert path.stat().st_ino in kept, path


async def test_two_pods_that_store_the_same_part_at_once_leave_it_whole(memory: Shelf, storage: Shelf) -> None:
    """A pod and its keeper, on shared storage; both are PID 1 of their containers."""
    root = made(memory, content=bytes(1 << 20))
    told: list[str] = []
    archives = [Archive(memory, storage, told.append) for _ in range(2)]
    for _ in range(10):
        await asyncio.gather(*(archive._copy_newest(V) for archive in archives))
        folders.verify(storage.folder(V, 0), frozenset({root}))
        assert [entry.name for entry in (storage.root / str(V)).iterdir()] == ["rank-0"]
        shutil.rmtree(storage.root / str(V))
    assert set(told) == {""}


# The shelf.


def test_newest_are_kept_by_step_and_the_committed_one_always(memory: Shelf) -> None:
    versions = [Version(1, 5), Version(1, 6), Version(1, 9), Version(2, 7)]
    for version in versions:
        made(memory, version)
    assert memory.versions() == [Version(1, 5), Version(1, 6), Version(2, 7), Version(1, 9)]
    memory.prune(Version(1, 6))
    assert memory.versions() == [Version(1, 6), Version(2, 7), Version(1, 9)]


def test_steps_that_were_undone_take_no_good_checkpoints_place(storage: Shelf) -> None:
    """All copies of steps 8 to 10 were bad, and a new epoch went on from step 7."""
    for version in (Version(1, 6), Version(1, 7), Version(1, 8), Version(1, 9), Version(1, 10)):
        made(storage, version)
    for version in (Version(2, 8), Version(2, 9)):
        made(storage, version)
        storage.prune(version)
    assert storage.versions() == [Version(1, 7), Version(2, 8), Version(2, 9)]


def test_what_is_no_version_is_left_alone(memory: Shelf) -> None:
    made(memory)
    (memory.root / "lost+found").mkdir()
    memory.prune(V)
    assert (memory.root / "lost+found").is_dir()


# Finding one.


async def test_own_memory_comes_first(memory: Shelf, storage: Shelf) -> None:
    root = made(memory)
    made(storage)
    assert await obtain(Wanted(V, frozenset({root}), 0), memory, storage, []) == Found(memory.folder(V, 0), "memory")


async def test_another_ranks_copy_of_the_same_will_do(memory: Shelf) -> None:
    root = made(memory, rank=3)
    assert await obtain(Wanted(V, frozenset({root}), 0), memory, None, []) == Found(memory.folder(V, 3), "memory")


async def test_damaged_copy_is_skipped_and_a_peers_taken(memory: Shelf, tmp_path: Path, serve: Serve) -> None:
    root = made(memory)
    damage(memory)
    other = Shelf(tmp_path / "other", 2)
    made(other)
    found = await obtain(Wanted(V, frozenset({root}), 0), memory, None, [await serve(other)])
    assert content(found.path) == b"weights"
    assert found == Found(memory.folder(V, 0), "peer", "peer-0"), "it is in memory from now on"


@pytest.mark.parametrize("name", DAMAGES)
async def test_whatever_the_damage_another_copy_is_taken(memory: Shelf, storage: Shelf, name: str) -> None:
    root = made(memory)
    made(storage)
    DAMAGES[name](memory.folder(V, 0))
    found = await obtain(Wanted(V, frozenset({root}), 0), memory, storage, [])
    assert found == Found(storage.folder(V, 0), "storage")


async def test_a_copy_taken_off_the_shelf_while_it_is_read_is_no_copy(
    memory: Shelf, storage: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made(memory)
    made(storage)
    digest_of = folders.file_digest

    def late(path: Path) -> str:
        if path.is_relative_to(memory.root):
            shutil.rmtree(memory.root)
        return digest_of(path)

    monkeypatch.setattr(folders, "file_digest", late)
    found = await obtain(Wanted(V, frozenset({root}), 0), memory, storage, [])
    assert found.place == "storage"


async def test_peer_with_a_damaged_copy_is_left_for_the_next(memory: Shelf, tmp_path: Path, serve: Serve) -> None:
    bad, good = Shelf(tmp_path / "bad", 2), Shelf(tmp_path / "good", 2)
    root = made(bad)
    made(good)
    damage(bad)
    peers = [(await serve(bad)).model_copy(update={"rank": 0}), (await serve(good)).model_copy(update={"rank": -1})]
    found = await obtain(Wanted(V, frozenset({root}), 0), memory, None, peers)
    assert content(found.path) == b"weights"


@pytest.mark.parametrize(
    ("parts", "file"),
    [
        (b"[]", b""),
        (b"no json", b""),
        (b'{"rank-0": ["ROOT"]}', b""),
        (b'{"rank-0": "ROOT"}', b"no manifest"),
        (b'{"rank-0": "ROOT"}', b"[]"),
        (b'{"rank-0": "ROOT"}', bytes(1 << 20)),
    ],
    ids=["a list", "no JSON", "a strange root", "no manifest", "another manifest", "no end"],
)
async def test_peer_that_talks_nonsense_is_left_for_the_next(
    memory: Shelf, tmp_path: Path, serve: Serve, unused_tcp_port: int, parts: bytes, file: bytes
) -> None:
    good = Shelf(tmp_path / "good", 2)
    root = made(good)

    async def speak_of_parts(_: web.Request) -> web.Response:
        return web.Response(body=parts.replace(b"ROOT", root.encode()), content_type="application/json")

    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(64 if len(file) > 99 else 1):
            await response.write(file)
        return response

    app = web.Application()
    app.router.add_get("/checkpoints/{version}", speak_of_parts)
    app.router.add_get("/checkpoints/{version}/{rank}/{file}", give)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    bad = Peer(pod="bad", role=Role.TRAINER, address="127.0.0.1", agent_port=unused_tcp_port, rank=0)
    peers = [bad, (await serve(good)).model_copy(update={"rank": -1})]
    found = await obtain(Wanted(V, frozenset({root}), 0), memory, None, peers)
    assert content(found.path) == b"weights"
    await runner.cleanup()


async def test_peer_that_is_too_slow_is_left_for_the_next_and_told_of(
    memory: Shelf, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never stalls for long, and would take days: a broken cable, a machine that swaps."""
    monkeypatch.setattr(fetch, "patience", lambda size_bytes: 0.1, raising=False)

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    async def speak_of_parts(_: web.Request) -> web.Response:
        return web.json_response({"rank-0": "root"})

    app = web.Application()
    app.router.add_get("/checkpoints/{version}", speak_of_parts)
    app.router.add_get("/checkpoints/{version}/{rank}/{file}", drip)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    slow = Peer(pod="slow", role=Role.TRAINER, address="127.0.0.1", agent_port=unused_tcp_port, rank=0)
    with pytest.raises(NoCopy, match=r"slow: MANIFEST.json did not come within"):
        async with asyncio.timeout(10):
            await obtain(Wanted(V, frozenset({"root"}), 0), memory, None, [slow])
    await runner.cleanup()


async def test_storage_is_the_last_resort(memory: Shelf, storage: Shelf, serve: Serve, tmp_path: Path) -> None:
    root = made(storage)
    peer = await serve(Shelf(tmp_path / "empty", 2))
    assert await obtain(Wanted(V, frozenset({root}), 0), memory, storage, [peer]) == Found(
        storage.folder(V, 0), "storage"
    )


async def test_error_names_every_place(memory: Shelf, storage: Shelf, serve: Serve, tmp_path: Path) -> None:
    root = made(memory)
    made(storage)
    damage(memory)
    damage(storage)
    empty = await serve(Shelf(tmp_path / "empty", 2))
    dead = Peer(pod="dead", role=Role.TRAINER, address="127.0.0.1", agent_port=9)
    with pytest.raises(NoCopy) as caught:
        await obtain(Wanted(V, frozenset({root}), 0), memory, storage, [empty, dead])
    for word in ("checkpoint 2.7", "memory:", "storage:", "peer-0:", "dead:"):
        assert word in str(caught.value)


async def test_another_checkpoint_of_the_same_name_is_not_taken(memory: Shelf, serve: Serve, tmp_path: Path) -> None:
    """What a fenced trainer wrote late: same version, never committed."""
    other = Shelf(tmp_path / "other", 2)
    made(other, content=b"never committed")
    made(memory, content=b"never committed either")
    with pytest.raises(NoCopy):
        await obtain(Wanted(V, frozenset({"0" * 32}), 0), memory, None, [await serve(other)])


# Archiving.


async def test_newest_committed_checkpoint_reaches_storage(memory: Shelf, storage: Shelf) -> None:
    archive = Archive(memory, storage, [].append)
    task = asyncio.create_task(archive.run())
    roots = {}
    for step in (1, 2, 3):
        roots[step] = made(memory, Version(1, step))
        archive.committed(Version(1, step))
    async with asyncio.timeout(10):
        while not storage.copies(Version(1, 3)):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
    task.cancel()
    folders.verify(storage.folder(Version(1, 3), 0), frozenset({roots[3]}))
    assert storage.versions() == [Version(1, 3)], "those it was too slow for are skipped"


async def something(told: list[str]) -> None:
    """Wait until anything was told."""
    while not told:  # noqa: ASYNC110 - a list has no event
        await asyncio.sleep(0.01)


async def test_unwritable_storage_is_said_and_survived(memory: Shelf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[str] = []
    archive = Archive(memory, Shelf(tmp_path / "file", 2), told.append)
    task = asyncio.create_task(archive.run())
    made(memory)
    archive.committed(V)
    async with asyncio.timeout(10):
        await something(told)
        assert told == ["checkpoints cannot be written to storage: Not a directory"]
        assert not task.done()
        (tmp_path / "file").unlink()
        archive.committed(V)
        while told[-1]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")]
)
async def test_storage_that_refuses_on_purpose_is_one_that_does(
    memory: Shelf, storage: Shelf, number: int, words: str
) -> None:
    """The volume is not touched; told and survived like any other trouble, and the newest is stored afterwards."""
    clock = SimpleNamespace(now=100.0)
    told: list[str] = []
    archive = Archive(memory, storage, told.append)
    archive.refusal = Refusal(lambda: clock.now)
    made(memory, Version(1, 1))
    archive.refusal.begin(number, 5.0)
    await archive._copy_newest(Version(1, 1))
    await archive.flush()
    assert (told, storage.root.exists()) == ([f"checkpoints cannot be written to storage: {words}"], False)
    clock.now += 5.0
    made(memory, Version(1, 2))
    await archive._copy_newest(Version(1, 2))
    assert (told[1:], storage.versions()) == ([""], [Version(1, 2)])


class Hung:
    """Storage that takes nothing until it answers again."""

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()
        self._copy = folders.copy

    def copy(self, source: Path, target: Path) -> None:
        self.asked.set()
        assert self.answers.wait(30)
        self._copy(source, target)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    made = Hung()
    monkeypatch.setattr(folders, "copy", made.copy)
    yield made
    made.answers.set()


async def test_memory_does_not_fill_up_while_storage_hangs(memory: Shelf, storage: Shelf, hung: Hung) -> None:
    """Two checkpoints and the one on its way are all that there is room for."""
    archive = Archive(memory, storage, [].append)
    task = asyncio.create_task(archive.run())
    for step in range(1, 6):
        made(memory, Version(1, step))
        archive.committed(Version(1, step))
        await asyncio.to_thread(hung.asked.wait, 10)
        async with asyncio.timeout(10):
            while len(memory.versions()) > 3:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.01)
    assert memory.versions() == [Version(1, step) for step in (1, 4, 5)]
    hung.answers.set()
    async with asyncio.timeout(10):
        await archive.settled()
    assert storage.versions() == [Version(1, 1), Version(1, 5)], "what was on its way arrived, and then the newest"
    task.cancel()


async def test_storage_that_hangs_is_told_of_and_heard_of_again(
    memory: Shelf, storage: Shelf, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "SLOW_SECONDS", 0.01)
    told: list[str] = []
    archive = Archive(memory, storage, told.append)
    task = asyncio.create_task(archive.run())
    made(memory)
    archive.committed(V)
    async with asyncio.timeout(10):
        await something(told)
        assert "storage is slow" in told[0]
        hung.answers.set()
        await archive.settled()
    assert told[1:] == [""]
    task.cancel()


async def test_a_leaving_pod_hands_over_what_its_workers_could_not_announce(memory: Shelf, storage: Shelf) -> None:
    """They died between the ledger's answer and their telling the agent."""
    archive = Archive(memory, storage, [].append)
    for step in (7, 8):
        made(memory, Version(2, step))
    archive.committed(Version(2, 7))
    await archive.flush()
    assert storage.versions() == [Version(2, 7), Version(2, 8)]
