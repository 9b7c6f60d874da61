"""Teaches a small transformer to sort four digits, by reinforcement learning from random weights.

Plain data-parallel PyTorch. What RobustRL adds is `job`: whatever machine dies while this runs, the next incarnation
of this script picks up at the step after the last committed one, with the same batch and the same weights.
"""

import torch
from sort4 import grpo
from sort4.model import build_model
from sort4.schedule import learning_rate
from torch.nn.parallel import DistributedDataParallel

import robustrl

GRADIENT_NORM = 0.5


def mean(values):
    values = list(values)
    return sum(values) / max(1, len(values))


def set_learning_rate(optimizer, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate


def main() -> None:
    torch.set_num_threads(1)
    with robustrl.trainer() as job:
        model = build_model().to(job.device)
        optimizer = torch.optim.AdamW(model.parameters())
        job.restore(model=model, optimizer=optimizer)
        policy = DistributedDataParallel(model) if job.world_size > 1 else model

        for step in job.steps():
            batch = job.batch(step)
            with job.phase("Train"):
                set_learning_rate(optimizer, learning_rate(step, job.total_steps))
                loss = grpo.loss(policy, grpo.collate(batch.trajectories))
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
                optimizer.step()
            rewards = [trajectory["reward"] for trajectory in batch.trajectories]
            job.commit(step, loss=loss.item(), exact=mean(reward == 2.0 for reward in rewards))


if __name__ == "__main__":
    main()
