"""Drawing the next token of every running sequence.

Each sequence has its own random generator and takes exactly one uniform number a token, so what it draws
depends on its seed and on its own logits, not on who else is in the batch. The logits themselves can differ
in the last bits with the batch's shape; ``--enable-deterministic-inference`` removes that by running each
sequence alone.
"""

from __future__ import annotations

from collections.abc import Sequence as Series

import torch

from robustrl.engines.embedded.sequence import Sequence


def draw(logits: torch.Tensor, batch: Series[Sequence]) -> list[tuple[int, float]]:
    """For each row of ``logits [B, V]``: the drawn token and its log-probability at the sequence's
    temperature, which is no number where the logits are none."""
    temperatures = torch.tensor([1.0 if s.params.greedy else s.params.temperature for s in batch], dtype=torch.float64)
    logprobs = torch.log_softmax(logits.double() / temperatures[:, None], dim=-1)
    drawn = _inverse_cdf(_restricted(logprobs.exp(), batch), batch)
    greedy = torch.tensor([s.params.greedy for s in batch])
    tokens = torch.where(greedy, logprobs.argmax(dim=-1), drawn)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0]
    return list(zip(tokens.tolist(), chosen.tolist(), strict=True))


def _inverse_cdf(weights: torch.Tensor, batch: Series[Sequence]) -> torch.Tensor:
    uniform = torch.cat([torch.rand(1, generator=s.generator, dtype=torch.float64) for s in batch])
    cumulative = weights.cumsum(dim=-1)
    target = uniform[:, None] * cumulative[:, -1:]
    # right=True: a token of weight zero can never be met, not even by a uniform of exactly 0.
    index = torch.searchsorted(cumulative, target, right=True)[:, 0]
    return index.clamp(max=weights.shape[1] - 1)


def _restricted(probabilities: torch.Tensor, batch: Series[Sequence]) -> torch.Tensor:
    """The probabilities with everything outside top-k and top-p set to zero (not renormalised)."""
    if all(s.params.top_p == 1 and s.params.top_k <= 0 for s in batch):
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    size = probabilities.shape[1]
    top_p = torch.tensor([s.params.top_p for s in batch], dtype=torch.float64)[:, None]
    top_k = torch.tensor([min(s.params.top_k, size) if s.params.top_k > 0 else size for s in batch])[:, None]
    before = ordered.cumsum(dim=-1) - ordered
    keep = ((before < top_p) | (top_p == 1)) & (torch.arange(size) < top_k)
    return torch.zeros_like(probabilities).scatter(1, order, ordered * keep)
