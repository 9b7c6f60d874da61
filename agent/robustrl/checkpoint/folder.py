"""One checkpoint folder: its files, their digests, and the mark that it is complete.

A folder is filled under a temporary name and renamed when its manifest is in it, so whoever sees the folder sees all
of it. The root digest covers every file's name, size and digest; the ledger holds it, so a copy can be trusted
wherever it came from.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import xxhash

MANIFEST = "MANIFEST.json"
READ_BYTES = 1 << 20


class BadCopy(Exception):
    """A checkpoint folder that is not what its manifest says, or has none."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    name: str
    size_bytes: int
    digest: str
    """xxh3-128 of the file's content, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Manifest:
    files: tuple[FileEntry, ...]

    @property
    def root(self) -> str:
        """Digest of the whole folder."""
        return xxhash.xxh3_128_hexdigest(self.to_json().encode())

    def to_json(self) -> str:
        return json.dumps([[f.name, f.size_bytes, f.digest] for f in self.files])

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `to_json` wrote.

        Raises:
            BadCopy: the text is something else.
        """
        try:
            return cls(
                tuple(FileEntry(_plain(name), int(size), str(digest)) for name, size, digest in json.loads(text))
            )
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise BadCopy(f"unreadable manifest: {error}") from error


def _plain(name: str) -> str:
    if not name or "/" in name or name in (".", "..", MANIFEST):
        raise ValueError(f"{name!r} is no plain file name")
    return name


def seal(folder: Path) -> Manifest:
    """Digest the files of a folder and write its manifest into it."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and entry.name != MANIFEST)
    manifest = Manifest(tuple(_entry(folder / name) for name in names))
    (folder / MANIFEST).write_text(manifest.to_json())
    return manifest


def _entry(path: Path) -> FileEntry:
    return FileEntry(path.name, path.stat().st_size, file_digest(path))


def file_digest(path: Path) -> str:
    """xxh3-128 of a file."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The folder's manifest, unchecked.

    Raises:
        BadCopy: there is none, or it cannot be read.
    """
    try:
        return Manifest.from_json((folder / MANIFEST).read_text(errors="replace"))
    except OSError as error:
        raise BadCopy(f"{folder} has no readable manifest: {error.strerror}") from error


def verify(folder: Path, roots: frozenset[str]) -> Manifest:
    """Check every byte of a folder against one of `roots`.

    Raises:
        BadCopy: it is not one of those checkpoints, or a file of it is damaged or cannot be read.
    """
    manifest = read_manifest(folder)
    if manifest.root not in roots:
        raise BadCopy(f"{folder} holds another checkpoint than the one committed")
    for entry in manifest.files:
        path = folder / entry.name
        try:
            digest = file_digest(path)
        except OSError as error:
            raise BadCopy(f"{path} is damaged or missing: {error.strerror}") from error
        if digest != entry.digest:
            raise BadCopy(f"{path} is damaged")
    return manifest


def copy(source: Path, target: Path) -> None:
    """Copy a sealed folder so that `target` appears complete or not at all, durably."""
    temporary = make_beside(target)
    try:
        for entry in source.iterdir():
            shutil.copyfile(entry, temporary / entry.name)
            _sync(temporary / entry.name)
        # A file's name is its folder's content: synchronizing the file alone does not keep it.
        _sync(temporary)
        put_in_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for parent in (target.parent, target.parent.parent):
        _sync(parent)


def make_beside(target: Path) -> Path:
    """An empty folder to fill. The name is nobody else's: on shared storage each agent is its own machine's PID 1."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    temporary.mkdir(parents=True)
    return temporary


def put_in_place(temporary: Path, target: Path) -> None:
    """Give a finished folder its name; one that is there already is replaced."""
    if target.exists():
        shutil.rmtree(target, ignore_errors=True)  # perhaps by somebody else at this moment
    temporary.rename(target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
