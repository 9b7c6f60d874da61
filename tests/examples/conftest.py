"""Sampling from the model in this process, through the very rollout function that jobs use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from sort4.model import build_model
from sort4.tasks import prompts, rollout


@dataclass
class Turn:
    tokens: list[int]


@dataclass
class LocalEpisode:
    """Meets the other episodes of its batch in ``sampler`` to draw together."""

    sampler: Sampler
    tokens: list[int]
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def extend(self, tokens: list[int], logprobs: list[float], mask: int) -> None:
        self.tokens += tokens
        self.logprobs += logprobs
        self.loss_mask += [mask] * len(tokens)

    def observe(self, tokens: list[int]) -> None:
        self.extend(tokens, [0.0] * len(tokens), 0)

    async def generate(self, *, max_new_tokens: int, temperature: float = 1.0) -> Turn:
        tokens, logprobs = await self.sampler.join(self.tokens, max_new_tokens)
        self.extend(tokens, logprobs, 1)
        return Turn(tokens)


class Sampler:
    """Draws for all episodes once all have asked; they move in step, so their lengths are equal."""

    def __init__(self, model: torch.nn.Module, size: int, greedy: bool) -> None:
        self._model = model
        self._size = size
        self._greedy = greedy
        self._asked: list[tuple[list[int], asyncio.Future]] = []

    async def join(self, tokens: list[int], count: int):
        future = asyncio.get_running_loop().create_future()
        self._asked.append((tokens, future))
        if len(self._asked) == self._size:
            self._draw(count)
        return await future

    @torch.no_grad()
    def _draw(self, count: int) -> None:
        asked, self._asked = self._asked, []
        ids = torch.tensor([tokens for tokens, _ in asked])
        drawn = []
        for _ in range(count):
            logprobs = torch.log_softmax(self._model(ids)[:, -1], dim=-1)
            token = logprobs.argmax(-1, keepdim=True) if self._greedy else torch.multinomial(logprobs.exp(), 1)
            drawn.append(logprobs.gather(1, token))
            ids = torch.cat([ids, token], dim=1)
        for row, (_, future) in enumerate(asked):
            future.set_result((ids[row, -count:].tolist(), [column[row].item() for column in drawn]))


async def _sample(model: torch.nn.Module, indices: list[int], samples: int, greedy: bool) -> list[dict]:
    sampler = Sampler(model, len(indices) * samples, greedy)

    async def one(index: int, sample: int) -> dict:
        prompt = prompts(index)
        length = len(prompt["tokens"])
        episode = LocalEpisode(sampler, list(prompt["tokens"]), [0] * length, [0.0] * length)
        reward = await rollout(prompt, episode)
        return {
            "id": f"{index}-{sample}",
            "prompt_index": index,
            "tokens": episode.tokens,
            "loss_mask": episode.loss_mask,
            "logprobs": episode.logprobs,
            "reward": reward,
        }

    return await asyncio.gather(*(one(index, sample) for index in indices for sample in range(samples)))


Sample = Callable[..., list[dict]]


@pytest.fixture
def sample() -> Sample:
    """Trajectories of the prompts, as the managers would hand them out."""

    def run(model, indices, samples=16, *, greedy=False) -> list[dict]:
        return asyncio.run(_sample(model, list(indices), samples, greedy))

    return run


@pytest.fixture
def behaviour():
    """A second model, to hold the older weights that rollouts are drawn with."""
    return build_model()
