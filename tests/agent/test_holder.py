"""An agent tells the managers what it holds, whatever they answer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from robustrl.supervisor import holder as module
from robustrl.supervisor.holder import Holder
from weightsync import Address, Manifest, Peers
from weightsync.swarm.strikes import Strikes


class Source:
    def verified(self, root: str) -> int:
        return 0


class Managers:
    """Gives one answer after another, the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.told = asyncio.Event()

    async def call(self, *_: object, **__: object) -> object:
        if len(self.answers) > 1:
            return self.answers.pop(0)
        self.told.set()
        return self.answers[0]


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        {},
        {"holders": None},
        {"holders": [{}]},
        {"holders": ["10.0.0.1:1"]},
        {"holders": [{"address": "10.0.0.1:1", "host": "h", "have": "no bitmap"}]},
        {"holders": [{"address": "10.0.0.1:1", "host": "h", "have": 3}]},
    ],
)
async def test_an_answer_that_makes_no_sense_does_not_end_the_telling(
    nonsense: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would notice: the pod's weights would be named to nobody from then on."""
    monkeypatch.setattr(module, "PULLING_SECONDS", 0.0)
    good = {"holders": [{"address": "10.0.0.1:1", "host": "h", "have": "01"}]}
    managers = Managers(nonsense, good)
    peers = Peers()
    holder = Holder(cast(Any, managers), cast(Any, Source()), Address("127.0.0.1", 1), Strikes())
    holder.announce(Manifest.of(memoryview(bytes(4096)), epoch=1, step=1, chunk_bytes=4096), peers)
    async with asyncio.timeout(10):
        await managers.told.wait()
    holder.close()
