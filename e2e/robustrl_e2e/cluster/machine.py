"""A machine: its own process, mount, host name and network namespaces, a cgroup, and a disk (a folder) of its own.

Its first process is a shell that runs the boot script. Like a real machine's init it starts the daemons, starts them
again when they end, and reaps orphans; and when it is killed, everything in the machine is gone in the same instant.
The machine's /var is its disk and outlives that; its /run is memory and does not.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import cgroups, state, storage
from .errors import ClusterError, log_tail
from .layout import Machine
from .process import Identity, identify, read_pid_file, write_pid_file

CONFIG = "/var/robustrl"  # the machine's configuration, as seen inside
BINARIES = f"{CONFIG}/bin"  # the cache of built binaries, as seen inside
KILL_SECONDS = 120.0
"""A process that waits for the disk dies only when that has answered, which takes a busy one tens of seconds."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Daemon:
    """A program that the machine keeps running. It starts when the path `after` exists."""

    name: str
    command: Sequence[str]
    after: str = ""


def disk(machine: Machine) -> Path:
    """The machine's /var, as seen from the host."""
    return state.machine_folder(machine) / "var"


def config_folder(machine: Machine) -> Path:
    return disk(machine) / "robustrl"


def log(machine: Machine, daemon: str) -> Path:
    return disk(machine) / "log" / f"{daemon}.log"


def boot(machine: Machine, daemons: Iterable[Daemon], binaries: Path) -> None:
    """Start the machine; its network namespace and configuration are there already."""
    for part in ("robustrl/bin", "log", "lib", "tmp"):
        (disk(machine) / part).mkdir(parents=True, exist_ok=True)
    (disk(machine) / "run").unlink(missing_ok=True)
    (disk(machine) / "run").symlink_to("/run")
    folder = state.machine_folder(machine)
    (folder / "boot.sh").write_text(render_boot(machine, folder, daemons, binaries))
    (folder / "launch.sh").write_text(render_launch(machine, folder, cgroups.create(machine.cgroup)))
    with (folder / "console.log").open("ab") as console:
        process = subprocess.Popen(
            ["/bin/sh", folder / "launch.sh"],
            stdin=subprocess.DEVNULL, stdout=console, stderr=console, cwd="/", start_new_session=True,
            env={"PATH": PATH, "HOME": "/root"},
        )  # fmt: skip
    identity = identify(process.pid)
    if identity is None:
        raise ClusterError(f"{machine.name} ended as it started; see {folder / 'console.log'}")
    write_pid_file(_pid_file(machine), identity)


def render_launch(machine: Machine, folder: Path, leaves: Iterable[Path]) -> str:
    """Run on the host: enter the cgroups and the network namespace, then become the machine."""
    enter = [f"echo 0 > {shlex.quote(str(leaf / 'cgroup.procs'))}" for leaf in leaves]
    return "\n".join([
        "set -eu",
        # What serves the cluster has machines of its own elsewhere: here it must not wait for the pods' turn. Pods lead
        # sessions of their own, which do not inherit this. Not every kernel groups by session.
        "{ echo -10 > /proc/self/autogroup; } 2>/dev/null || :",
        *enter,
        f"exec nsenter --net=/run/netns/{machine.netns} \\",
        # Mounts of the host show up inside, none of the machine's show up in the host.
        "  unshare --pid --fork --kill-child=SIGKILL --mount-proc --uts --propagation slave \\",
        f"  /bin/sh {shlex.quote(str(folder / 'boot.sh'))}",
        "",
    ])  # fmt: skip


def render_boot(machine: Machine, folder: Path, daemons: Iterable[Daemon], binaries: Path) -> str:
    """Run as the machine's first process."""
    var = shlex.quote(str(folder / "var"))
    lines = [
        "set -eu",
        f"hostname {machine.name}",
        "mount --make-rshared /",
        f"mount --bind {shlex.quote(str(binaries))} {var}/robustrl/bin",
        f"mount --rbind {shlex.quote(str(storage.folder(machine.cluster)))} {storage.MOUNT_POINT}",
        f"mount --rbind {var} /var",  # from here on paths below the host's /var mean the machine's own
        "mount -t tmpfs -o mode=0755,nosuid,nodev machine-run /run",
        "mkdir -p /run/netns /run/lock",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "cd /",
        'keep() { name=$1; shift; while :; do "$@" >>"/var/log/$name.log" 2>&1 || :; sleep 1; done; }',
    ]
    for daemon in daemons:
        if daemon.after:
            lines.append(f"until [ -e {daemon.after} ]; do sleep 0.05; done")
        lines.append(f"keep {daemon.name} {shlex.join(daemon.command)} &")
    return "\n".join([*lines, "wait", ""])


def alive(machine: Machine) -> bool:
    identity = read_pid_file(_pid_file(machine))
    return identity is not None and identity.alive


def require_alive(machine: Machine) -> None:
    """An error with what the machine's console said last, if it is not running."""
    if not alive(machine):
        console = log_tail(state.machine_folder(machine) / "console.log")
        raise ClusterError(f"{machine.name} of cluster {machine.cluster} is not running\n{console}".rstrip())


def freeze(machine: Machine, *, frozen: bool) -> None:
    """Let everything in the machine stand still, as that of a suspended virtual one does, or go on."""
    cgroups.freeze(machine.cgroup, frozen=frozen)


def kill(machine: Machine) -> None:
    """Cut the power: SIGKILL to the first process, hence to all, and wait until none is left."""
    freeze(machine, frozen=False)  # what is frozen does not die
    if identity := read_pid_file(_pid_file(machine)):
        identity.signal(signal.SIGKILL)
    kill_cgroup(machine.cgroup)
    _pid_file(machine).unlink(missing_ok=True)


def kill_cgroup(cgroup: str) -> None:
    """SIGKILL whatever runs in the cgroup or below it until nothing does."""
    deadline = time.monotonic() + KILL_SECONDS
    while running := [i for i in map(identify, cgroups.processes(cgroup)) if i is not None]:
        if time.monotonic() > deadline:
            pids = sorted(each.pid for each in running)
            raise ClusterError(
                f"processes of {cgroup} have survived SIGKILL for {KILL_SECONDS:.0f} s: {pids}. They wait for a disk "
                "or a device (state D in `ps`): try again when it has answered"
            )
        for identity in running:
            identity.signal(signal.SIGKILL)
        time.sleep(0.02)


def find(machine: Machine, program: str) -> Identity | None:
    """The process of this machine that runs the program of that file name."""
    for pid in cgroups.processes(machine.cgroup):
        try:
            executable = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        # The file of a program that runs may have been replaced, as by an upgrade of its package.
        if Path(executable).name.removesuffix(" (deleted)") == program:
            return identify(pid)
    return None


def reach(machine: Machine, path: str) -> Path:
    """A path inside the running machine, as the host can open it (sockets in its /run included)."""
    containerd = find(machine, "containerd")
    if containerd is None:
        raise ClusterError(f"containerd of {machine.name} is not running")
    return Path(f"/proc/{containerd.pid}/root{path}")


def _pid_file(machine: Machine) -> Path:
    return state.machine_folder(machine) / "pid"
