"""Live progress: one line every second, with step, reward, tokens a second of each rollout, and roles."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from robustrl_api.job import RLJob
from robustrl_operator.report.timeline import Timeline

T = TypeVar("T")

LINE_SECONDS = 1.0
QUIET_LINE_SECONDS = 5.0


async def follow(timeline: Timeline, job: RLJob, end: Awaitable[T]) -> T:
    """Print progress until `end` is reached; its result."""
    printer = asyncio.create_task(_print_lines(timeline, job), name="progress")
    try:
        return await end
    finally:
        printer.cancel()
        await asyncio.gather(printer, return_exceptions=True)
        print(line(timeline, job))


async def _print_lines(timeline: Timeline, job: RLJob) -> None:
    marks = 0
    while True:
        await asyncio.sleep(LINE_SECONDS if sys.stdout.isatty() else QUIET_LINE_SECONDS)
        for mark in timeline.marks[marks:]:
            print(f"{mark.seconds:6.1f} s  *** {mark.text}")
        marks = len(timeline.marks)
        print(line(timeline, job), flush=True)


def line(timeline: Timeline, job: RLJob) -> str:
    """The newest sample in one line."""
    if not timeline.samples:
        return "  0.0 s  starting"
    sample = timeline.samples[-1]
    trainers = sum(1 for pod in sample.pods if pod.role == "trainer")
    rollouts = [pod for pod in sample.pods if pod.role == "rollout"]
    rates = " ".join(f"{timeline.tokens_per_second(pod.name):4.0f}" for pod in rollouts)
    reward = f"{sample.reward:.2f}" if sample.reward is not None else "  - "
    state = "recovering" if sample.recovering else "training" if sample.epoch else "starting"
    return (
        f"{sample.seconds:6.1f} s  step {sample.step:4d}/{job.spec.steps}  reward {reward}  epoch {sample.epoch}"
        f"  trainers {trainers}/{job.spec.trainer.replicas}  rollouts {len(rollouts)}/{job.spec.rollout.replicas}"
        f"  tokens/s [{rates}]  {state}"
    )
