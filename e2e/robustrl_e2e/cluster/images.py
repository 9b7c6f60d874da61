"""Images without a registry: built on this box, cached by content, imported into each node.

An image is known in a node by a second name made of its content's digest. A node that has that name has the image.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import archive, binaries, kind, machine, node, preflight, state
from .binaries import PAUSE
from .errors import ClusterError
from .layout import Cluster, Machine
from .process import COMMAND_SECONDS, run
from .progress import Step, step, wait_for

BASE_TAG = "robustrl.dev/base:1"
BASE_SUITE = "bookworm"  # its python3 is 3.11
BASE_PACKAGES = ("python3", "python3-pip", "ca-certificates")
ARCHIVE = "image.tar"
MAKING = "making-"
IMPORTS_AT_ONCE = 2
ANSWER_SECONDS = 30.0
"""For a containerd that is asked whether it is there; one that starts may take the question and not answer yet."""
# Documentation and translations.
_LEAVE_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/var/cache/apt/*")
_ENVIRONMENT = {
    "PATH": machine.PATH,
    "PYTHONUNBUFFERED": "1",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the image is the environment
    "PIP_NO_CACHE_DIR": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}


@dataclass(frozen=True)
class Image:
    """A built image: the tag that pods name, the archive, and the digest of what it was built from."""

    tag: str
    archive: Path
    digest: str

    @property
    def content_name(self) -> str:
        return _family(self.tag) + self.digest


def folder() -> Path:
    """The cache of image archives."""
    return state.cache_root() / "images"


def pause() -> Image:
    """The image that holds a pod's namespaces."""
    binaries.ensure(PAUSE)
    image = _image(node.PAUSE_IMAGE, PAUSE.digest)
    with _making(image) as scratch:
        if scratch:
            archive.write_layer(scratch / "layer", {"pause": PAUSE.folder / "pause"})
            archive.write_image(scratch / ARCHIVE, scratch / "layer", image.tag, entrypoint=["/pause"])
    return image


def build_base() -> Image:
    """Debian 12 with python3 and pip, made from the Debian archive that this box itself uses."""
    recipe = repr((BASE_SUITE, BASE_PACKAGES, _LEAVE_OUT, sorted(_ENVIRONMENT.items())))
    image = _image(BASE_TAG, hashlib.sha256(recipe.encode()).hexdigest()[:12])
    with _making(image) as scratch:
        if scratch:
            preflight.require_root()
            preflight.ensure(preflight.IMAGES)
            _debootstrap(scratch / "layer.tar")
            archive.write_image(scratch / ARCHIVE, scratch / "layer.tar", image.tag, environment=_ENVIRONMENT)
    return image


def build_image(dockerfile: Path, context: Path, tag: str, base: Image | None = None) -> Image:
    """Build a Dockerfile that begins with `ARG BASE` and `FROM ${BASE}`, on `base` or on Debian with Python.

    The base has Python 3.11 and pip. Let packages come from the context (`pip install --no-index --find-links`): then
    the same content is the same image. Where a build must use the network, `ARG PIP_CERT` gives pip the host's own CAs.
    """
    if kind.available():
        return Image(tag, kind.build_image(dockerfile, context, tag, base.tag if base else ""), "docker")
    base = base or build_base()
    image = _image(tag, _digest_tree(dockerfile, context, base.digest))
    with _making(image) as scratch:
        if scratch:
            preflight.require_root()
            preflight.ensure(preflight.IMAGES)
            with step(f"building image {tag}") as current:
                _buildah_build(base, dockerfile, context, tag, scratch / ARCHIVE, current)
    return image


def load(cluster: Cluster, image: Image, nodes: Sequence[str] = ()) -> None:
    """Import the image into the named nodes (all of them by default), except where it is already."""
    if cluster.provider == "kind":
        kind.load_image(cluster, image.tag)
        return
    workers = [cluster.worker(name) for name in nodes or cluster.node_names]
    with step(f"image {image.tag} in {len(workers)} nodes"), ThreadPoolExecutor(IMPORTS_AT_ONCE) as pool:
        list(pool.map(lambda worker: _import(worker, image), workers))


def built(tag: str) -> Image:
    """The image of that tag as it was built last.

    Raises:
        ClusterError: it never was.
    """
    if kind.available():
        return Image(tag, Path(), "docker")
    if archives := _archives(tag):
        return Image(tag, archives[-1], archives[-1].stem.rpartition("@")[2])
    raise ClusterError(f"image {tag} has not been built")


def take_away(cluster: Cluster, tag: str) -> None:
    """Let no node know an image by its tag; pods that run keep theirs. There is no registry to pull it from."""
    for worker in _live_nodes(cluster):
        _ctr(worker, "images", "remove", tag)


def give_back(cluster: Cluster, tag: str) -> None:
    """Let every node that has the image know it by its tag again."""
    for worker in _live_nodes(cluster):
        names = _ctr(worker, "images", "list", "--quiet").split()
        if tag not in names:
            for content in (name for name in names if name.startswith(_family(tag))):
                _ctr(worker, "images", "tag", content, tag)


def _live_nodes(cluster: Cluster) -> list[Machine]:
    if cluster.provider == "kind":
        raise ClusterError("this fault is not available with kind")
    return [cluster.worker(name) for name in cluster.node_names if machine.alive(cluster.worker(name))]


def _import(worker: Machine, image: Image) -> None:
    if _missing_containerd(worker):
        log = machine.log(worker, "containerd")
        wait_for(f"containerd of {worker.name}", lambda: _missing_containerd(worker), log=lambda: log)
    if image.content_name not in _ctr(worker, "images", "list", "--quiet").split():
        _ctr(worker, "images", "import", str(image.archive))
        _ctr(worker, "images", "tag", "--force", image.tag, image.content_name)
        _forget_older(worker, image)
    else:
        _ctr(worker, "images", "tag", "--force", image.content_name, image.tag)


def _forget_older(worker: Machine, image: Image) -> None:
    """Let the node drop what the tag named before; containers that run on it keep what they need."""
    names = _ctr(worker, "images", "list", "--quiet").split()
    if old := [name for name in names if name.startswith(_family(image.tag)) and name != image.content_name]:
        _ctr(worker, "images", "remove", *old)


def _missing_containerd(worker: Machine) -> str:
    machine.require_alive(worker)
    try:
        _ctr(worker, "version", seconds=ANSWER_SECONDS)
    except ClusterError as error:
        return str(error).splitlines()[-1]
    return ""


def _ctr(worker: Machine, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
    socket = machine.reach(worker, node.CONTAINERD_SOCKET)
    return run("ctr", "--address", socket, "--namespace", "k8s.io", *arguments, seconds=seconds)


def _debootstrap(target: Path) -> None:
    with step(f"Debian {BASE_SUITE} with {', '.join(BASE_PACKAGES)}") as current:
        excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEAVE_OUT]
        _follow(current, [
            "mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", *excluded,
            "--customize-hook=rm -rf $1/var/lib/apt/lists/* $1/usr/share/doc $1/usr/share/locale $1/var/cache/apt",
            BASE_SUITE, str(target), *_host_sources(),
        ])  # fmt: skip


def _host_sources() -> list[str]:
    """The box's own package sources, if it runs the very release that the base is made of."""
    if platform.freedesktop_os_release().get("VERSION_CODENAME") != BASE_SUITE:
        return []
    parts = sorted(Path("/etc/apt/sources.list.d").glob("debian*"))
    listed = [Path("/etc/apt/sources.list"), *(path for path in parts if path.suffix in (".sources", ".list"))]
    return [str(path) for path in listed if path.exists() and path.read_text().strip()]


def _buildah_build(base: Image, dockerfile: Path, context: Path, tag: str, target: Path, current: Step) -> None:
    """Build in a store of its own, so that the user's images stay as they are."""
    with tempfile.TemporaryDirectory(prefix="robustrl-buildah-") as scratch:
        store = ["buildah", "--root", f"{scratch}/store", "--runroot", f"{scratch}/run", "--storage-driver", "overlay"]
        _follow(current, [*store, "pull", f"docker-archive:{base.archive}"])
        authorities = "/etc/ssl/certs"
        _follow(current, [
            *store, "build", "--isolation", "chroot", "--pull-never", "--layers=false",
            "--volume", f"{authorities}:{authorities}:ro",
            "--build-arg", f"BASE={base.tag}", "--build-arg", f"PIP_CERT={authorities}/ca-certificates.crt",
            "--tag", tag, "--file", str(dockerfile), str(context),
        ])  # fmt: skip
        _follow(current, [*store, "push", tag, f"docker-archive:{target}:{tag}"])


def _follow(current: Step, command: list[str]) -> None:
    """Run a command with its last line of output as the step's progress."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        current.update(line.strip())
    if process.wait():
        raise ClusterError(f"{command[0]} failed ({process.returncode}):\n" + "\n".join(lines[-15:]))


@contextmanager
def _making(image: Image) -> Iterator[Path | None]:
    """A scratch folder, in which ARCHIVE is to be written; None where the image is there already.

    One image is made at a time. Its archive gets its name only when it is whole. Of the archives of one tag the newest
    two stay: each is hundreds of megabytes, and another working tree may be about to load its own.
    """
    folder().mkdir(parents=True, exist_ok=True)
    with state.locked("_images"):
        if image.archive.exists():
            image.archive.touch()
            yield None
            return
        for left in folder().glob(f"{MAKING}*"):  # of one that was killed
            shutil.rmtree(left)
        scratch = Path(tempfile.mkdtemp(prefix=MAKING, dir=folder()))
        try:
            yield scratch
            os.replace(scratch / ARCHIVE, image.archive)
        finally:
            shutil.rmtree(scratch)
        for old in _archives(image.tag)[:-2]:
            old.unlink()


def _archives(tag: str) -> list[Path]:
    """Of all images of a tag, the one that was asked for last at the end."""
    return sorted(folder().glob(f"{_slug(tag)}@*.tar"), key=lambda path: path.stat().st_mtime_ns)


def _image(tag: str, digest: str) -> Image:
    return Image(tag, folder() / f"{_slug(tag)}@{digest}.tar", digest)


def _family(tag: str) -> str:
    """What the second names of all images of a tag begin with."""
    return f"content.robustrl.dev/{_slug(tag)}:"


def _slug(tag: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", tag.lower()).strip("-")


def _digest_tree(dockerfile: Path, context: Path, base: str) -> str:
    """Of names, modes and contents: whatever changes them makes another image."""
    digest = hashlib.sha256(base.encode() + dockerfile.read_bytes())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(context)} {path.stat().st_mode:o}".encode())
        with path.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:12]
