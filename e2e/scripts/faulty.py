"""The example's training with a fault of the script's own: `faulty.py FAULT STEP`.

`raise` raises in that step, always. `restart` raises in the restore of every epoch from the second to number STEP.
`linger` lets the first step of every epoch take STEP seconds longer, so that it can be struck.
`deadlock` lets rank 0 wait in the first epoch for what nobody sends, and the others wait for rank 0 in a collective.
"""

import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import train

from robustrl.sdk.job import Batch, TrainerJob

FAULT, STEP = sys.argv[1], int(sys.argv[2])
lease, restore = TrainerJob.batch, TrainerJob.restore
begun: list[int] = []


def batch(self: TrainerJob, step: int) -> Batch:
    found = lease(self, step)
    if FAULT == "linger" and not begun:
        time.sleep(STEP)
    begun.append(step)
    if step == STEP and FAULT == "raise":
        raise ArithmeticError(f"the loss of step {step} is not a number")
    if step == STEP and FAULT == "deadlock" and self.epoch == 1 and self.rank == 0:
        with self.phase("Train"):
            dist.recv(torch.zeros(1), src=1)
    return found


def fail_to_restore(self: TrainerJob, **objects: Any) -> int:
    if 2 <= self.epoch <= STEP:
        raise ArithmeticError(f"epoch {self.epoch} cannot start")
    return restore(self, **objects)


if __name__ == "__main__":
    if FAULT == "restart":
        TrainerJob.restore = fail_to_restore  # type: ignore[method-assign]
    TrainerJob.batch = batch  # type: ignore[method-assign]
    train.main()
