"""The example's training with a fault of the script's own: `faulty.py raise STEP` or `faulty.py deadlock STEP`.

`raise` raises in that step, always; `deadlock` lets rank 0 wait in the first epoch for what nobody sends, and the
others wait for rank 0 in a collective.
"""

import sys

import torch
import torch.distributed as dist
import train

from robustrl.sdk.job import Batch, TrainerJob

FAULT, STEP = sys.argv[1], int(sys.argv[2])
lease = TrainerJob.batch


def batch(self: TrainerJob, step: int) -> Batch:
    found = lease(self, step)
    if step == STEP and FAULT == "raise":
        raise ArithmeticError(f"the loss of step {step} is not a number")
    if step == STEP and FAULT == "deadlock" and self.epoch == 1 and self.rank == 0:
        with self.phase("Train"):
            dist.recv(torch.zeros(1), src=1)
    return found


if __name__ == "__main__":
    TrainerJob.batch = batch  # type: ignore[method-assign]
    train.main()
