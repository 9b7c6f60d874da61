"""What strangers and broken peers may say to a source, and what they cannot do with it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from weightsync import Address, Manifest, Peer, Source, Tensor, fetch_manifest
from weightsync.dialogue import MOST_UNREAD_BYTES, Dialogue
from weightsync.transport import TransportError
from weightsync.wire import LONGEST_REPLY_BYTES, Flag, Kind, Message, Version

pytest.importorskip("ucxx", reason="weights over UCX need the extra 'ucx'")
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

DATA = bytes(range(256)) * 4096
MANIFEST = Manifest.of(DATA, epoch=1, step=1)
VERSION = Version(1, 1, 0, MANIFEST.root)


@pytest_asyncio.fixture(loop_scope="session")
async def source() -> AsyncIterator[Source]:
    held = Source()
    await held.start()
    held.hold(MANIFEST, DATA)
    yield held
    await held.close()


def address_of(source: Source) -> Address:
    assert source._listener is not None
    return Address("127.0.0.1", int(source._listener.sockets[0].getsockname()[1]))


async def connected(source: Source) -> tuple[Dialogue, list[bytes]]:
    heard: list[bytes] = []
    return await Dialogue.open(address_of(source), heard.append, longest_bytes=LONGEST_REPLY_BYTES), heard


def ask(attempt: int, flags: Flag = Flag.NONE) -> bytes:
    return Message(Kind.ASK, VERSION, attempt, flags=flags, candidates=(0, 1)).pack()


async def until(is_so: Any) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - another object's state
            await asyncio.sleep(0.01)


async def test_a_request_made_twice_under_one_number_ends_its_own_connection_and_nobodys_else(source: Source) -> None:
    """Its second turn would come when the first was over, in the middle of serving another puller."""
    bad, _ = await connected(source)
    for attempt in (1, 2, 3, 4, 4):
        bad.say(ask(attempt))
    await until(lambda: not source._pullers)
    assert (source.uploads.leases.in_use, source.uploads.leases.queued) == (0, 0)
    good, heard = await connected(source)
    good.say(ask(1))
    await until(lambda: len(heard) == 2)
    assert Message.unpack(heard[1]).kind is Kind.CHUNK
    good.close()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack("<I", 1 << 31), id="a frame of 2 GiB"),
        pytest.param(struct.pack("<I", 4) + b"noise", id="no message"),
        pytest.param(struct.pack("<I", 0), id="nothing"),
        pytest.param(struct.pack("<I", len(word := Message(Kind.FREE, VERSION).pack())) + word, id="a source's word"),
    ],
)
async def test_who_says_anything_else_is_cut_off(source: Source, frame: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", address_of(source).port)
    writer.write(frame)
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    writer.close()
    await until(lambda: not source._pullers)


async def test_a_puller_keeps_the_name_it_came_with(source: Source) -> None:
    """Its requests are known by it; and a name for every word would be remembered for every word."""
    dialogue, heard = await connected(source)
    for number in range(3):
        name = Peer(f"10.0.0.{number}:1")
        dialogue.say(Message(Kind.HELLO, VERSION, have=b"\0", peers=(name,)).pack())
    await until(lambda: len(heard) == 4)
    assert [puller.name for puller in source._pullers.values()] == ["10.0.0.0:1"]
    dialogue.close()


async def test_a_manifest_longer_than_what_may_be_left_unread_arrives(source: Source) -> None:
    tensor = Tensor("n" * (1 << 20), "U8", (), 0, 0)
    long = Manifest.of(b"x", epoch=1, step=2, tensors=[tensor] * 20)
    assert len(long.to_json()) > MOST_UNREAD_BYTES
    source.hold(long, b"x")
    found = await fetch_manifest(address_of(source), epoch=1, step=2, shard=0, root=long.root, seconds=30)
    assert found == long


async def test_who_asks_and_does_not_read_is_cut_off(source: Source) -> None:
    tensor = Tensor("n" * (1 << 20), "U8", (), 0, 0)
    long = Manifest.of(b"x", epoch=1, step=2, tensors=[tensor] * 20)
    source.hold(long, b"x")
    _, writer = await asyncio.open_connection("127.0.0.1", address_of(source).port, limit=1024)
    word = Message(Kind.MANIFEST, Version(1, 2, 0, long.root)).pack()
    for _ in range(4):
        writer.write(struct.pack("<I", len(word)) + word)
    await until(lambda: bool(source._pullers))
    await until(lambda: not source._pullers)
    writer.transport.abort()


@pytest.mark.parametrize("host", ["x" * 70 + ".invalid", "a..b", "nul\0host"])
async def test_names_that_no_resolver_takes_lead_to_nobody(host: str) -> None:
    with pytest.raises(TransportError):
        await Dialogue.open(Address(host, 1), lambda _: None, longest_bytes=1)
