"""Programs built from the Go module proxy, and cached by the content of what they are built from.

Each folder under `go/` is a module whose go.mod pins every version; Kubernetes, CoreDNS and Helm are its `tool`
dependencies, so no Go code is written for them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import preflight, proxy, state
from .errors import ClusterError
from .progress import Step, step

GO_FOLDER = Path(__file__).parent / "go"
KUBERNETES_VERSION = "v1.34.4"
HELM_VERSION = "v3.19.0"
_VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Module:
    """A folder under `go/`, the packages built from it and the variables stamped into them."""

    name: str
    packages: tuple[str, ...]
    stamps: tuple[str, ...] = ()

    @property
    def ldflags(self) -> str:
        return " ".join(["-s -w", *(f"-X {stamp}" for stamp in self.stamps)])

    @property
    def digest(self) -> str:
        """Of everything that decides what comes out: pinned versions, sources and flags."""
        digest = hashlib.sha256(self.ldflags.encode())
        for path in sorted((GO_FOLDER / self.name).iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:10]

    @property
    def folder(self) -> Path:
        return root() / f"{self.name}-{self.digest}"

    def built(self, package: str) -> Path:
        """Where the program of one of its packages is, or will be."""
        return self.folder / self.program(package)

    def program(self, package: str) -> str:
        return self.name if package == "." else package.rpartition("/")[2]

    def inside(self, program: str) -> str:
        """The program's path relative to `root()`."""
        return f"{self.folder.name}/{program}"


_KUBERNETES_STAMPS = (
    f"{_VERSION_PACKAGE}.gitVersion={KUBERNETES_VERSION}",
    f"{_VERSION_PACKAGE}.gitMajor=1",
    f"{_VERSION_PACKAGE}.gitMinor=34",
)
_DAEMONS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
KUBERNETES = Module("kubernetes", tuple(f"k8s.io/kubernetes/cmd/{name}" for name in _DAEMONS), _KUBERNETES_STAMPS)
KUBECTL = Module("kubernetes", ("k8s.io/kubernetes/cmd/kubectl",), _KUBERNETES_STAMPS)
COREDNS = Module("coredns", ("github.com/coredns/coredns",))
PAUSE = Module("pause", (".",))
HELM = Module("helm", ("helm.sh/helm/v3/cmd/helm",), (
    f"helm.sh/helm/v3/internal/version.version={HELM_VERSION}",
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34",
))  # fmt: skip


def root() -> Path:
    """The cache of built programs."""
    return state.cache_root() / "bin"


def ensure(*modules: Module) -> None:
    """Build what is not in the cache yet."""
    with state.locked("_build"):
        for module in modules:
            if missing := [package for package in module.packages if not module.built(package).exists()]:
                _build(module, missing)


def kubectl() -> Path:
    """kubectl from PATH, else one built here."""
    return _from_path_or(KUBECTL, "kubectl")


def helm() -> Path:
    """Helm from PATH, else one built here."""
    return _from_path_or(HELM, "helm")


def _from_path_or(module: Module, program: str) -> Path:
    proxy.bypass()
    if found := shutil.which(program):
        return Path(found)
    ensure(module)
    return module.folder / program


def _build(module: Module, packages: list[str]) -> None:
    """Build into a folder beside the final one, so that a build that was cut off leaves no half program."""
    fresh = module.folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    programs = [module.program(package) for package in packages]
    with step(f"building {', '.join(programs)} (once; kept in {module.folder})") as current:
        _go_build(module, packages, fresh, current)
    module.folder.mkdir(exist_ok=True)
    for program in programs:
        (fresh / program).rename(module.folder / program)
    fresh.rmdir()


def _go_build(module: Module, packages: list[str], target: Path, current: Step) -> None:
    flags = ("-v", "-trimpath", "-buildvcs=false", f"-ldflags={module.ldflags}", "-o", f"{target}/")
    process = subprocess.Popen(
        [preflight.go(), "build", *flags, *packages],
        cwd=GO_FOLDER / module.name, env={**os.environ, "CGO_ENABLED": "0"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    output = _Follower(process.stderr)
    while process.poll() is None:
        current.update(output.summary)
        time.sleep(0.5)
    if process.returncode:
        raise ClusterError(f"go build of {module.name} failed; its last lines:\n" + "\n".join(output.tail()))


class _Follower:
    """Reads what `go build -v` prints (a line for each package compiled or downloaded) as it comes."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: deque[str] = deque(maxlen=15)
        self._count = 0
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.append(line.rstrip())
            self._count += 1

    @property
    def summary(self) -> str:
        return f"{self._count} packages, now {self._lines[-1]}" if self._lines else "linking or reading the cache"

    def tail(self) -> list[str]:
        self._thread.join(timeout=5)
        return list(self._lines)
