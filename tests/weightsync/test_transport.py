"""What comes into the process with UCX."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import asyncio, os, sys
from weightsync import Source

async def main():
    Source().start()
    await asyncio.sleep(1)  # the progress thread runs by then

asyncio.run(main())
print("GPU:", sorted(name for name in sys.modules if name.startswith(("cuda.", "pynvml"))))
sys.stdout.flush()
os._exit(0)
"""


def test_tcp_brings_no_library_for_gpus_into_the_agent() -> None:
    """They would cost it 33 MB, and a context in the memory of the user's GPU."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "GPU: []\n", done.stderr
