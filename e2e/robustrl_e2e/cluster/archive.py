"""Writes an image archive (the format of `docker save`) of one layer: no builder and no daemon is needed for that."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names, which images go by, of the kernel's."""


def write_image(
    target: Path, layer: Path, tag: str, *, entrypoint: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> None:
    """Write an image with one layer (an uncompressed tar) to `target`."""
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    variables = [f"{name}={value}" for name, value in (environment or {}).items()]
    config = json.dumps({
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Env": variables},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "robustrl"}],
    }).encode()  # fmt: skip
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar"]}]).encode()
    with tarfile.open(target, "w") as archive:
        _add(archive, name, config)
        archive.add(layer, f"{digest}.tar")
        _add(archive, "manifest.json", manifest)


def write_layer(target: Path, files: Mapping[str, Path]) -> None:
    """Write a layer that holds the given programs, owned by root, without times: same input, same layer."""
    with tarfile.open(target, "w") as layer:
        for name, source in sorted(files.items()):
            content = source.read_bytes()
            _add(layer, name, content, mode=0o755)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
