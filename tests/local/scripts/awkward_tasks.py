"""What the managers run in the awkward job: tools that take long, and a function that blocks their loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from sort4 import tasks

LONG, SHORT = 14.0, 4.0
"""Seconds: longer than every window of the test, probe included; and shorter than all of them."""
TOOL = 20.0
"""Some of it passes before anybody waits: the next batch is begun while the last one is trained on."""
PROMPTS_PER_STEP = SAMPLES_PER_PROMPT = 8
TOOL_STEPS, BLOCKING_PROMPT = frozenset({2, 9}), 4 * PROMPTS_PER_STEP


def prompts(index: int) -> dict[str, Any]:
    return {**tasks.prompts(index), "index": index}


async def rollout(prompt: Mapping[str, Any], episode: tasks.Episode) -> float:
    """For all prompts of a step a tool of `TOOL`; for one prompt `SHORT` in which the managers answer nobody."""
    if prompt["index"] // PROMPTS_PER_STEP in TOOL_STEPS:
        await asyncio.sleep(TOOL)
    if prompt["index"] == BLOCKING_PROMPT:
        time.sleep(SHORT / SAMPLES_PER_PROMPT)  # noqa: ASYNC251 - what users are told not to do
    return await tasks.rollout(prompt, episode)
