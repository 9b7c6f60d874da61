"""What a manifest promises: it covers every byte once, and its root covers all of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightsync import BadManifest, Manifest
from weightsync.manifest import MIN_CHUNK_BYTES, Chunk, Tensor, chunk_size, digest_of

DATA = bytes(range(256)) * 4096
MANIFEST = Manifest.of(DATA, epoch=2, step=7, tensors=[Tensor("w", "F32", (2, 2), 0, 16)])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 3 * MIN_CHUNK_BYTES), st.integers(1, 2 * MIN_CHUNK_BYTES))
def test_chunks_cover_every_byte_once_in_order(size: int, chunk_bytes: int) -> None:
    data = DATA[:1024] * (size // 1024) + DATA[: size % 1024]
    manifest = Manifest.of(data, epoch=1, step=1, chunk_bytes=chunk_bytes)
    position = 0
    for chunk in manifest.chunks:
        assert chunk.offset == position
        assert 0 < chunk.size_bytes <= chunk_bytes
        assert chunk.digest == digest_of(data[position : position + chunk.size_bytes])
        position += chunk.size_bytes
    assert position == size == manifest.size_bytes


@pytest.mark.parametrize(
    ("size", "largest", "wanted"),
    [
        pytest.param(100, 16 << 20, MIN_CHUNK_BYTES, id="small: not smaller than the least"),
        pytest.param(64 << 20, 16 << 20, 1 << 20, id="medium: 64 chunks to share"),
        pytest.param(64 << 30, 16 << 20, 16 << 20, id="large: the largest"),
        pytest.param(0, 16 << 20, MIN_CHUNK_BYTES, id="nothing"),
        pytest.param(1 << 40, 4 << 20, 8 << 20, id="huge: no more chunks than a bitmap holds"),
    ],
)
def test_chunk_size(size: int, largest: int, wanted: int) -> None:
    assert chunk_size(size, largest) == wanted


def test_a_manifest_survives_the_wire() -> None:
    assert Manifest.from_json(MANIFEST.to_json(), MANIFEST.root) == MANIFEST


@pytest.mark.parametrize("change", [{"epoch": 3}, {"step": 8}, {"shard": 1}, {"size_bytes": 1}, {"tensors": ()}])
def test_the_root_covers_every_field(change: dict[str, object]) -> None:
    assert replace(MANIFEST, **change).root != MANIFEST.root  # type: ignore[arg-type]


def test_equal_bytes_have_equal_content_under_another_version() -> None:
    relabelled = Manifest.of(DATA, epoch=3, step=7)
    assert relabelled.content == MANIFEST.content
    assert relabelled.root != MANIFEST.root


def chunks(*spans: tuple[int, int]) -> dict[str, object]:
    return {"chunks": tuple(Chunk(offset, size, "0" * 32) for offset, size in spans), "size_bytes": 100}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="another shape"),
        pytest.param(MANIFEST.to_json()[:-20], id="cut off"),
        pytest.param(json.dumps({"chunks": []}).encode(), id="fields missing"),
        pytest.param(replace(MANIFEST, **chunks((0, 60))).to_json(), id="chunks that end too early"),  # type: ignore[arg-type]
        pytest.param(replace(MANIFEST, **chunks((0, 60), (60, 60))).to_json(), id="chunks that reach too far"),  # type: ignore[arg-type]
        pytest.param(replace(MANIFEST, **chunks((0, 60), (50, 50))).to_json(), id="chunks that overlap"),  # type: ignore[arg-type]
        pytest.param(replace(MANIFEST, **chunks((-10, 110))).to_json(), id="negative offset"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(BadManifest):
        Manifest.from_json(text, digest_of(text))


def test_another_manifest_than_the_one_announced_is_refused() -> None:
    with pytest.raises(BadManifest, match="not the one announced"):
        Manifest.from_json(replace(MANIFEST, step=8).to_json(), MANIFEST.root)
