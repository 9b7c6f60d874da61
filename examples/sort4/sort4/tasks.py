"""The task: four digits in, the same digits sorted out.

The model is asked for the sorted digits in two halves with a turn of a "tool" in between, which confirms with one
token that the first half has arrived. The tool takes ``SORT4_TOOL_SECONDS`` (default 0) and stands for whatever
makes real rollouts slow.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from typing import Any, Protocol

DIGITS = 4
SORT = 10  # asks for the sorted digits
GO_ON = 11  # the tool: the first half has arrived


class Episode(Protocol):
    """The part of ``robustrl.managers.episode.Episode`` that is used here."""

    async def generate(self, *, max_new_tokens: int, temperature: float = 1.0) -> Any: ...

    def observe(self, tokens: list[int]) -> None: ...


def prompts(index: int) -> dict[str, Any]:
    """The prompt of that index: four random digits that depend on nothing else."""
    source = random.Random(f"sort4/{index}")
    digits = [source.randrange(10) for _ in range(DIGITS)]
    return {"tokens": [*digits, SORT], "answer": sorted(digits)}


async def rollout(prompt: Mapping[str, Any], episode: Episode) -> float:
    """One episode: half of the answer, the tool, the other half."""
    first = await episode.generate(max_new_tokens=DIGITS // 2)
    await asyncio.sleep(float(os.environ.get("SORT4_TOOL_SECONDS", "0")))
    episode.observe([GO_ON])
    second = await episode.generate(max_new_tokens=DIGITS // 2)
    return reward(prompt["answer"], [*first.tokens, *second.tokens])


def reward(expected: list[int], given: list[int]) -> float:
    """Fraction of digits in their place, and 1 more if all are."""
    right = sum(a == b for a, b in zip(expected, given, strict=False))
    return right / DIGITS + (1.0 if given == expected else 0.0)
