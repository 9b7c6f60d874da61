"""The cache of images: what two builds leave each other, and what a build leaves that was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from robustrl_e2e.cluster import images
from robustrl_e2e.cluster.images import ARCHIVE, Image


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images.kind, "available", lambda: False)


def make(digest: str, tag: str = "robustrl:dev") -> Image:
    """As a build does; whatever was made before is a second older."""
    for path in images.folder().glob("*.tar"):
        then = path.stat().st_mtime - 1
        os.utime(path, (then, then))
    image = images._image(tag, digest)
    with images._making(image) as scratch:
        if scratch:
            (scratch / ARCHIVE).write_text(digest)
    return image


def test_the_image_that_another_working_tree_is_about_to_load_stays() -> None:
    mine = make("1")
    make("2")
    assert mine.archive.read_text() == "1"


def test_older_archives_go() -> None:
    make("0", tag="other:dev")
    for digest in ("1", "2", "3"):
        make(digest)
    left = sorted(path.name for path in images.folder().iterdir())
    assert left == ["other-dev@0.tar", "robustrl-dev@2.tar", "robustrl-dev@3.tar"]


def test_what_was_asked_for_last_is_what_was_built_last() -> None:
    first = make("1")
    make("2")
    assert images.built("robustrl:dev").digest == "2"
    assert make("1") == first == images.built("robustrl:dev")


def test_a_build_that_failed_leaves_nothing_and_one_that_was_killed_until_the_next() -> None:
    killed = images.folder() / f"{images.MAKING}killed"
    killed.mkdir(parents=True)
    (killed / "layer.tar").write_text("much")
    with pytest.raises(OSError, match="no such file"), images._making(images._image("robustrl:dev", "1")):
        raise OSError("no such file")
    assert list(images.folder().iterdir()) == []
