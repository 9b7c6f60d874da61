"""Who measures learns of the standstills of his own time, and of no other."""

from __future__ import annotations

import asyncio
import time

from robustrl_operator.control.loop_watch import LoopWatch

SHORT, LONG = 0.3, 0.6
"""Seconds; a busy machine may add to them."""


async def test_each_measures_his_own_time() -> None:
    watch = LoopWatch()
    with watch.measuring() as whole:
        time.sleep(LONG)  # noqa: ASYNC251 - that is what is measured
        await asyncio.sleep(0)
        with watch.measuring() as second:
            time.sleep(SHORT)  # noqa: ASYNC251
    assert whole.seconds > LONG - 0.1
    assert SHORT - 0.1 < second.seconds < whole.seconds


async def test_nothing_ticks_when_nobody_measures() -> None:
    watch = LoopWatch()
    tasks = len(asyncio.all_tasks())
    for _ in range(2):
        with watch.measuring(), watch.measuring():
            assert len(asyncio.all_tasks()) == tasks + 1
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == tasks
