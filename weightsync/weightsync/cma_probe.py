"""Whether processes here may read each other's memory, which UCX's CMA transport lives from: by trying it.

Being allowed depends on user ids, capabilities, yama, seccomp and the kernel. A child process reads from its parent, as
a puller reads from a source that is not its descendant.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
import sys

PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)
SECONDS = 5.0
_READER = """
import ctypes, os, sys
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
pid, address, size = map(int, sys.argv[1:])
there = ctypes.create_string_buffer(size)
here, far = Part(ctypes.addressof(there), size), Part(address, size)
libc = ctypes.CDLL(None, use_errno=True)
libc.process_vm_readv.restype = ctypes.c_ssize_t
got = libc.process_vm_readv(pid, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(far), ctypes.c_ulong(1), 0)
print(there.raw.hex() if got == size else os.strerror(ctypes.get_errno()))
"""


def why_not() -> str:
    """Why CMA is refused; empty where it is allowed."""
    token = ctypes.create_string_buffer(secrets.token_bytes(16), 16)
    try:
        # As UCX does where yama restricts ptrace: without it only ancestors may read.
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _READER, str(os.getpid()), str(ctypes.addressof(token)), "16"],
            capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, AttributeError, subprocess.TimeoutExpired) as error:
        return f"cannot be tried: {error}"
    said = answer.stdout.strip()
    return "" if said == token.raw.hex() else said or "the trying process failed"
