"""Adopted processes that have ended are reaped, and those under care are left to whoever cares for them."""

from __future__ import annotations

import os
import subprocess
import sys

from robustrl.supervisor.orphans import dead_children, reap

PROGRAM = """
import os, subprocess, time
from robustrl.supervisor.orphans import dead_children, reap
from robustrl.supervisor.process import adopt_orphans

adopt_orphans()
for _ in range(3):
    subprocess.run(["sh", "-c", "true & sleep 0 & exit 0"], check=True)
while len(dead_children(os.getpid())) < 6:
    time.sleep(0.01)
seen = reap(frozenset())
print(len(seen), len(dead_children(os.getpid())))
assert reap(seen) == frozenset()
print(len(dead_children(os.getpid())))
"""


def test_orphans_do_not_pile_up() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["6", "6", "0"], done.stderr


def test_who_has_just_ended_is_left_to_whoever_cares_for_him() -> None:
    child = subprocess.Popen(["sh", "-c", "exit 3"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid in dead_children(os.getpid())
    assert child.pid in reap(frozenset())
    assert child.wait() == 3
