"""A source in a process of its own, for the tests: prints its port, serves, and can be told to fail.

python source_process.py SEED SIZE EPOCH STEP [FAULT [AFTER]]; FAULT: kill or stop (itself, after AFTER answers), flip
(a byte of the last chunk, after sealing).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

from weightsync import Manifest, Source
from weightsync.swarm.uploads import Answer, Send

CHUNK_BYTES = 256 * 1024


def weights(seed: int, size: int) -> bytearray:
    """The same bytes wherever they are made."""
    return bytearray(random.Random(seed).randbytes(size))


def sealed(seed: int, size: int, epoch: int, step: int) -> tuple[Manifest, bytearray]:
    data = weights(seed, size)
    return Manifest.of(data, epoch=epoch, step=step, chunk_bytes=CHUNK_BYTES), data


class FailingSource(Source):
    """Sends itself a signal instead of its n-th chunk."""

    def __init__(self, number: signal.Signals, after: int) -> None:
        super().__init__()
        self._signal, self._left = number, after

    def carry_out(self, answers: list[Answer]) -> None:
        self._left -= sum(isinstance(answer, Send) for answer in answers)
        if self._left < 0:
            os.kill(os.getpid(), self._signal)
        super().carry_out(answers)


async def main() -> None:
    seed, size, epoch, step = map(int, sys.argv[1:5])
    fault, after = (*sys.argv[5:], "", "0")[:2]
    manifest, data = sealed(seed, size, epoch, step)
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
    source = FailingSource(signals[fault], int(after)) if fault in signals else Source()
    if fault == "flip":
        data[-1] ^= 1
    port = await source.start()
    source.hold(manifest, data)
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
