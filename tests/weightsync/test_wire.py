"""Frames: fixed size, every field there and back, anything else refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightsync import Address
from weightsync.wire import REPLY_BYTES, REQUEST_BYTES, Operation, Reply, Request, Status

LONG, WORD = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
REQUESTS = st.builds(
    Request, st.sampled_from(Operation), LONG, LONG, WORD, st.binary(min_size=16, max_size=16).map(bytes.hex), WORD,
    st.integers(0, 2**62),
)  # fmt: skip


@settings(max_examples=50, derandomize=True)
@given(REQUESTS)
def test_requests_survive(request: Request) -> None:
    frame = request.pack()
    assert len(frame) == REQUEST_BYTES
    assert Request.unpack(frame) == request


@settings(max_examples=50, derandomize=True)
@given(st.sampled_from(Status), LONG)
def test_replies_survive(status: Status, size: int) -> None:
    frame = Reply(status, size).pack()
    assert len(frame) == REPLY_BYTES
    assert Reply.unpack(frame) == Reply(status, size)


@settings(max_examples=50, derandomize=True)
@given(st.binary(min_size=REQUEST_BYTES, max_size=REQUEST_BYTES))
def test_noise_is_no_request(frame: bytes) -> None:
    with pytest.raises(ValueError, match="not a weightsync request"):
        Request.unpack(frame)


def test_tags_of_different_attempts_never_meet() -> None:
    requests = [Request(Operation.CHUNK, 1, 1, 0, "0" * 32, 0, attempt) for attempt in range(1, 50)]
    tags = [tag for request in requests for tag in (request.reply_tag, request.data_tag)]
    assert len(set(tags)) == len(tags)
    assert 1 not in tags, "the requests' own tag"


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Address.parse(text)


def test_addresses_survive() -> None:
    assert str(Address.parse("10.0.0.1:8400")) == "10.0.0.1:8400"
