"""Messages: every field there and back, anything else refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightsync import Address, Peer
from weightsync.wire import MESSAGE_BYTES, TOKEN_BYTES, TOKEN_TAG, Flag, Kind, Message, Version, Welcome

LONG, WORD = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
VERSIONS = st.builds(Version, LONG, LONG, WORD, st.binary(min_size=16, max_size=16).map(bytes.hex))
PEERS = st.builds(Peer, st.text(max_size=30), st.text(max_size=30), st.booleans())
KINDS = st.sampled_from([kind for kind in Kind if kind is not Kind.MANIFEST])
MESSAGES = st.builds(
    Message, KINDS, VERSIONS, WORD, WORD, st.sampled_from(Flag), st.binary(max_size=200),
    st.lists(WORD, max_size=16).map(tuple), st.lists(PEERS, max_size=3).map(tuple),
) | st.builds(Message, st.just(Kind.MANIFEST), VERSIONS, WORD, text=st.binary(max_size=300))  # fmt: skip
NAMELESS = Version(1, 1, 0, "0" * 32)


@settings(max_examples=100, derandomize=True)
@given(MESSAGES, st.binary(max_size=20))
def test_messages_survive_whatever_follows_them_in_the_buffer(message: Message, rest: bytes) -> None:
    assert Message.unpack(message.pack() + rest) == message


@settings(max_examples=100, derandomize=True)
@given(st.binary(max_size=300))
def test_noise_is_no_message(frame: bytes) -> None:
    with pytest.raises(ValueError, match="not a weightsync message"):
        Message.unpack(frame)


@settings(max_examples=200, derandomize=True)
@given(MESSAGES, st.data())
def test_damaged_messages_are_refused_or_read_never_worse(message: Message, data: st.DataObject) -> None:
    frame = bytearray(message.pack())
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[place] ^= data.draw(st.integers(1, 255))
    end = data.draw(st.integers(0, len(frame)))
    with contextlib.suppress(ValueError):
        Message.unpack(bytes(frame[:end]))


def test_large_shards_fit() -> None:
    bitmap = bytes(128_000 // 8)
    assert Message.unpack(Message(Kind.HAVE, NAMELESS, have=bitmap).pack()).have == bitmap


def test_a_manifest_may_be_longer_than_other_messages() -> None:
    text = bytes(2 * MESSAGE_BYTES)
    assert Message.unpack(Message(Kind.MANIFEST, NAMELESS, text=text).pack()).text == text


def test_what_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="too long"):
        Message(Kind.HAVE, NAMELESS, have=bytes(MESSAGE_BYTES)).pack()


def test_tags_of_different_attempts_never_meet() -> None:
    tags = {Message(Kind.ASK, NAMELESS, attempt).data_tag for attempt in range(1, 50)}
    assert len(tags) == 49
    assert TOKEN_TAG not in tags


def test_a_welcome_survives() -> None:
    welcome = Welcome(50_000, bytes(range(TOKEN_BYTES)))
    assert Welcome.unpack(welcome.pack()) == welcome


@pytest.mark.parametrize("frame", [b"", b"SSH-2.0-OpenSSH_9.2", Welcome(1, b"").pack()[:-1], bytes(22)])
def test_who_welcomes_otherwise_is_no_source(frame: bytes) -> None:
    with pytest.raises(ValueError, match="no weight source"):
        Welcome.unpack(frame)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:-1", "host:0", "host:65536"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Address.parse(text)


def test_addresses_survive() -> None:
    assert str(Address.parse("10.0.0.1:8400")) == "10.0.0.1:8400"
