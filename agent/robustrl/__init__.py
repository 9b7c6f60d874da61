"""RobustRL's SDK: what a training script sees.

import robustrl

with robustrl.trainer() as job:
    job.restore(model=model, optimizer=optimizer)
    for step in job.steps():
        batch = job.batch(step)
        with job.phase("Train"):
            ...
        job.commit(step)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustrl.sdk.job import TrainerJob
    from robustrl.sdk.trainer import trainer

__all__ = ["TrainerJob", "trainer"]


def __getattr__(name: str) -> Any:
    """Import on first use: the agent imports this package too, and must not import torch."""
    if name == "trainer":
        from robustrl.sdk.trainer import trainer

        return trainer
    if name == "TrainerJob":
        from robustrl.sdk.job import TrainerJob

        return TrainerJob
    raise AttributeError(f"module 'robustrl' has no attribute {name!r}")
