"""GRPO without a reference model: group-normalised advantages, clipped ratios, no token weighs more than another.

A bonus for entropy keeps answers that are rarely right in play until they are learned. Without it the policy gives up
most first digits early, the more so the fresher its rollouts are, and finds each again when luck has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

ENTROPY = 0.05
"""What a nat of entropy a token is worth, in advantages of one standard deviation."""
_EPSILON = 1e-6


@dataclass(frozen=True)
class Batch:
    """Trajectories as padded tensors ``[B, T]``; row b ends where its mask does. ``advantages`` is ``[B]``."""

    tokens: torch.Tensor
    mask: torch.Tensor
    logprobs: torch.Tensor
    advantages: torch.Tensor


def collate(trajectories: Sequence[Mapping[str, Any]]) -> Batch:
    """Trajectories of whole groups (as the managers hand them out) to tensors."""
    width = max(len(trajectory["tokens"]) for trajectory in trajectories)

    def padded(name: str, kind: torch.dtype) -> torch.Tensor:
        rows = [list(trajectory[name]) for trajectory in trajectories]
        return torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=kind)

    return Batch(
        tokens=padded("tokens", torch.long),
        mask=padded("loss_mask", torch.float32),
        logprobs=padded("logprobs", torch.float32),
        advantages=torch.tensor(advantages(trajectories), dtype=torch.float32),
    )


def advantages(trajectories: Sequence[Mapping[str, Any]]) -> list[float]:
    """How much better each sample is than its group, in standard deviations; 0 where all are equal."""
    groups: dict[int, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory["prompt_index"]].append(trajectory["reward"])
    moments = {index: _moments(rewards) for index, rewards in groups.items()}
    return [(t["reward"] - moments[t["prompt_index"]][0]) / moments[t["prompt_index"]][1] for t in trajectories]


def _moments(rewards: list[float]) -> tuple[float, float]:
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / len(rewards)
    return mean, variance**0.5 + _EPSILON


def loss(model: nn.Module, batch: Batch, *, clip: float = 0.2, entropy: float = ENTROPY) -> torch.Tensor:
    """The clipped policy-gradient loss less the bonus, averaged over all generated tokens (so that length is no
    advantage).

    With ranks of equal shares, averaging their gradients gives the gradient over the whole batch; the number of
    generated tokens is taken as equal too, which the task guarantees.
    """
    policy = torch.log_softmax(model(batch.tokens[:, :-1]), dim=-1)
    logprobs = policy.gather(2, batch.tokens[:, 1:, None])[:, :, 0]
    ratio = torch.exp(logprobs - batch.logprobs[:, 1:])
    gain = batch.advantages[:, None]
    objective = torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
    bonus = -entropy * (policy.exp() * policy).sum(dim=-1)
    mask = batch.mask[:, 1:]
    return -((objective + bonus) * mask).sum() / mask.sum().clamp(min=1)
