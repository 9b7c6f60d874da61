"""Pulling over real UCX from sources in processes of their own, which die, hang and lie."""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.weightsync.source_process import sealed

from weightsync import Address, BadManifest, Holding, Incomplete, Manifest, Peer, Peers, Source, fetch_manifest, pull
from weightsync.transport import TransportError

pytest.importorskip("ucxx", reason="weights over UCX need the extra 'ucx'")
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

ROOT = Path(__file__).parents[2]
SEED, SIZE, EPOCH, STEP = 1, 5 << 20, 2, 7
MANIFEST, DATA = sealed(SEED, SIZE, EPOCH, STEP)
Start = Callable[..., Address]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts sources of the usual weights; all are ended with the test."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*fault: object, seed: int = SEED, size: int = SIZE, epoch: int = EPOCH) -> Address:
        words = [str(word) for word in (seed, size, epoch, STEP, *fault)]
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "source_process.py"), *words], stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "weightsync")},
        )  # fmt: skip
        processes.append(process)
        assert process.stdout
        return Address("127.0.0.1", int(process.stdout.readline()))

    yield begin
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()


def empty() -> bytearray:
    return bytearray(SIZE)


async def test_pulled_bytes_are_exact(start: Start) -> None:
    source = start()
    manifest = await fetch_manifest(source, epoch=EPOCH, step=STEP, shard=0, root=MANIFEST.root)
    assert manifest == MANIFEST
    target = empty()
    stats = await pull(manifest, [source], memoryview(target))
    assert target == DATA
    assert (stats.bytes_pulled, stats.bytes_skipped, stats.sources) == (SIZE, 0, 1)


def joined_later(first: Address, *others: Address, seconds: float = 0.5) -> Peers:
    """Peers of which all but the first are heard of only after a while, so that it is asked for certain."""
    peers = Peers([peer(first)])
    later = {peer(other): 0 for other in others}
    asyncio.get_running_loop().call_later(seconds, peers.update, later)
    return peers


def peer(address: Address) -> Peer:
    return Peer(str(address), address.host)


@pytest.mark.parametrize("after", [0, 5])
async def test_source_killed_mid_pull_is_left_for_the_next(start: Start, after: int) -> None:
    target = empty()
    stats = await pull(MANIFEST, joined_later(start("kill", after), start()), memoryview(target))
    assert target == DATA
    assert stats.sources == (2 if after else 1)


async def test_source_that_hangs_is_left_after_its_deadline(start: Start) -> None:
    target = empty()
    stats = await pull(MANIFEST, joined_later(start("stop", 5), start()), memoryview(target))
    assert target == DATA
    assert stats.sources == 2
    assert stats.seconds < 20


async def test_two_broken_sources_make_one_whole(start: Start) -> None:
    """What was verified from the first stays."""
    target = empty()
    # Neither gives all 20 chunks. What each offers in vain, and the three on their way as it dies, are lost.
    sources = [start("kill", 17), start("kill", 17)]
    await pull(MANIFEST, sources, memoryview(target))
    assert target == DATA


async def test_flipped_byte_is_never_taken(start: Start) -> None:
    target = empty()
    with pytest.raises(Incomplete, match="damaged") as caught:
        await pull(MANIFEST, [start("flip")], memoryview(target))
    assert len(MANIFEST.chunks) - 1 in caught.value.missing
    assert not any(target[-MANIFEST.chunks[-1].size_bytes :]), "the damaged chunk is not in the destination"
    again = empty()
    await pull(MANIFEST, [start("flip"), start()], memoryview(again))
    assert again == DATA


async def test_source_of_another_epoch_is_refused(start: Start) -> None:
    fenced = start(epoch=EPOCH - 1)
    with pytest.raises(TransportError, match="GONE"):
        await fetch_manifest(fenced, epoch=EPOCH, step=STEP, shard=0, root=MANIFEST.root)
    with pytest.raises(Incomplete, match="does not hold this version"):
        await pull(MANIFEST, [fenced], memoryview(empty()))


async def test_root_is_bound_to_its_version(start: Start) -> None:
    """The right bytes under a wrong name are refused as well."""
    source = start()
    with pytest.raises(TransportError, match="GONE"):
        await fetch_manifest(source, epoch=EPOCH + 1, step=STEP, shard=0, root=MANIFEST.root)


async def test_unchanged_chunks_are_not_sent_again(start: Start) -> None:
    before = bytearray(DATA)
    changed = MANIFEST.chunks[3]
    before[changed.offset] ^= 1
    held = Manifest.of(before, epoch=1, step=STEP, chunk_bytes=changed.size_bytes)
    target = empty()
    stats = await pull(MANIFEST, [start()], memoryview(target), held=Holding(held, memoryview(before)))
    assert target == DATA
    assert stats.bytes_pulled == changed.size_bytes


async def test_the_same_weights_under_a_new_version_cost_nothing() -> None:
    target = empty()
    relabelled = replace(MANIFEST, epoch=EPOCH + 1)
    stats = await pull(relabelled, [], memoryview(target), held=Holding(MANIFEST, memoryview(DATA)))
    assert target == DATA
    assert (stats.bytes_pulled, stats.sources) == (0, 0)


async def test_nobody_there_is_an_error_that_names_the_source() -> None:
    dead = Address("127.0.0.1", 9)
    with pytest.raises(Incomplete, match=r"127\.0\.0\.1:9"):
        await pull(MANIFEST, [dead], memoryview(empty()))


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1, 0])
async def test_destination_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="destination"):
        await pull(MANIFEST, [], memoryview(bytearray(size)))


async def test_cancelled_pull_leaves_nothing_running(start: Start) -> None:
    before = asyncio.all_tasks()
    task = asyncio.create_task(pull(MANIFEST, [start("stop", 3)], memoryview(empty())))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {t for t in asyncio.all_tasks() - before if not t.get_name().startswith("Task-")} == set()


async def test_manifest_of_another_shard_is_none(start: Start) -> None:
    with pytest.raises((TransportError, BadManifest)):
        await fetch_manifest(start(), epoch=EPOCH, step=STEP, shard=1, root=MANIFEST.root)


async def test_nothing_refers_to_weights_that_were_dropped(start: Start) -> None:
    """The garbage collector may not come for minutes, and meanwhile each version would take as much memory again."""
    mine = Source()
    port = await mine.start()
    target = mmap.mmap(-1, SIZE)
    freed = weakref.ref(target)
    gc.disable()
    try:
        await pull(MANIFEST, [start()], memoryview(target), source=mine, me=Peer(f"127.0.0.1:{port}"))
        mine.drop(MANIFEST.root)
        del target
        assert freed() is None
    finally:
        gc.enable()
        await mine.close()
