"""Which of UCX's transports to use, and the environment that makes them fast with error handling on.

Chosen once, at start, from what this machine allows. Whatever the user has set in the environment wins.

| profile | transports | where |
|---|---|---|
| tcp | tuned TCP | everywhere |
| cma | the same, and one copy by the kernel between processes of one host | where processes may read each other |
| + rdma | RDMA | where there are devices, and a system UCX that has RDMA: the wheel's has not |
| + cuda | GPU to GPU, one host: cuda_ipc | asked for, for weights in GPU memory |

A peer with fewer transports is still reached: the two use what both have. Shared memory (posix, sysv) is left out: CMA
needs none of it, and between process namespaces that share /dev/shm it hangs.
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from weightsync import cma_probe

TCP = {
    # With error handling UCX copies in fragments of this size; the defaults cost two thirds of the rate.
    "UCX_TCP_TX_SEG_SIZE": "256K",
    "UCX_TCP_RX_SEG_SIZE": "512K",
    "UCX_KEEPALIVE_INTERVAL": "2s",
    # A source that was killed and began again on its port would be refused it for a minute.
    "UCX_CM_REUSEADDR": "y",
    # Peers that die are ordinary here, and reported by us.
    "UCX_WARN_UNUSED_ENV_VARS": "n",
    "UCX_LOG_LEVEL": "fatal",
    "UCXX_LOG_LEVEL": "fatal",
    "UCXPY_LOG_LEVEL": "CRITICAL",
    # With futures a waiting coroutine costs nothing; without them it spins a core. The thread leaves the loop free.
    "UCXPY_ENABLE_PYTHON_FUTURE": "1",
    "UCXPY_PROGRESS_MODE": "thread",
}
CMA = {"UCX_CMA_MEMORY_INVALIDATE": "y"}
"""Without it UCX does not use CMA where errors are handled."""
RDMA_FOLDER = Path("/sys/class/infiniband")
GPU_FILE = Path("/dev/nvidiactl")
OLDEST_SYSTEM_UCX = (1, 18)
PREFER_SYSTEM_UCX = "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY"


@dataclass(frozen=True)
class Machine:
    """What the choice depends on."""

    cma_refused: str = ""
    """Why; empty where CMA is allowed."""
    rdma_devices: tuple[str, ...] = ()
    rdma_ucx: bool = False
    """Whether the system has a UCX with RDMA that UCXX takes."""
    gpu: bool = False


@dataclass(frozen=True)
class Profile:
    """A set of transports and the environment they need."""

    name: str
    environment: Mapping[str, str]


def probe() -> Machine:
    """Look at this machine. Starts a short process or two; takes some 30 ms."""
    devices = tuple(sorted(entry.name for entry in RDMA_FOLDER.iterdir())) if RDMA_FOLDER.is_dir() else ()
    return Machine(
        cma_refused=cma_probe.why_not(), rdma_devices=devices, rdma_ucx=bool(devices) and system_ucx_has_rdma(),
        gpu=GPU_FILE.exists(),
    )  # fmt: skip


def choose(machine: Machine, *, gpu_memory: bool = False) -> Profile:
    """The profile for a machine.

    Args:
        gpu_memory: weights lie in GPU memory. It loads CUDA into the process, so it is asked for, never found out.
    """
    names, transports, environment = ["tcp"], ["tcp"], dict(TCP)
    if not machine.cma_refused:
        names[0] = "cma"
        transports.append("cma")
        environment |= CMA
    if machine.rdma_devices and machine.rdma_ucx:
        names.append("rdma")
        transports.insert(0, "rc")
        # UCXX sets it to 1, which is right for a NIC of its own for every GPU, and wrong for host memory.
        rails = 1 if gpu_memory else len(machine.rdma_devices)
        environment |= {PREFER_SYSTEM_UCX: "true", "UCX_MAX_RNDV_RAILS": str(rails)}
    if gpu_memory and machine.gpu:
        names.append("cuda")
        transports += ["cuda_copy", "cuda_ipc"]
    return Profile("+".join(names), {"UCX_TLS": ",".join(transports), **environment})


def apply(environment: MutableMapping[str, str], *, gpu_memory: bool = False) -> str:
    """Put this machine's profile into an environment, below whatever is there. The profile's name, or "user's own"."""
    if "UCX_TLS" in environment:
        name, chosen = "user's own", {**TCP, **CMA}
    else:
        profile = choose(probe(), gpu_memory=gpu_memory)
        name, chosen = profile.name, dict(profile.environment)
    for variable, value in chosen.items():
        environment.setdefault(variable, value)
    return name


def system_ucx_has_rdma() -> bool:
    """Whether a UCX of the system's can be used by UCXX and has RDMA."""
    found = ctypes.util.find_library("ucp")
    if found is None:
        return False
    # In a process of its own: to load it here would stand in the way of the wheel's.
    asks = "import ctypes,sys;a,b,c=(ctypes.c_uint() for _ in 'abc');"
    asks += "ctypes.CDLL(sys.argv[1]).ucp_get_version(*map(ctypes.byref,(a,b,c)));"
    asks += "print(a.value,b.value,[l.split()[-1] for l in open('/proc/self/maps') if 'libucp' in l][0])"
    try:
        done = subprocess.run([sys.executable, "-I", "-c", asks, found], capture_output=True, text=True, timeout=10)
        major, minor, path = done.stdout.split()
    except (ValueError, OSError, subprocess.TimeoutExpired):
        return False
    return (int(major), int(minor)) >= OLDEST_SYSTEM_UCX and _has_rdma(Path(path).parent)


def wheel_ucx_has_rdma() -> bool:
    """Whether the UCX that came with UCXX has RDMA. Those on PyPI had not when this was written (1.21, 1.22)."""
    spec = find_spec("libucx")
    places = spec.submodule_search_locations if spec else None
    return bool(places) and any(_has_rdma(Path(place) / "lib") for place in places or ())


def _has_rdma(folder: Path) -> bool:
    return any((folder / "ucx").glob("libuct_ib*"))


def uses_cuda(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an environment lets UCX at GPUs. It does where nothing is said."""
    transports = environment.get("UCX_TLS", "all")
    return any(word in transports.split(",") or "cuda" in transports for word in ("all", "cuda"))
