"""Managers in this process with engines made of memory, and the trainer's side of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from robustrl.managers.agent_worker import UserFunctions
from robustrl.managers.config import ManagerConfig
from robustrl.managers.engine_client import EngineAnswer, EngineFailure, TurnRequest
from robustrl.managers.managers import Managers
from robustrl.managers.rollout_manager import EngineReport, EngineState
from robustrl.managers.versions import Announcement
from robustrl_api.version import Version


@dataclass
class FakeEngine:
    """Answers with tokens that depend on the seed only. ``fault`` may raise, wait, or give another answer."""

    version: str = "0.0"
    fault: Callable[[TurnRequest], object] | None = None
    seen: list[TurnRequest] = field(default_factory=list)

    def breaks(self) -> None:
        self.fault = failing

    def hangs(self) -> None:
        self.fault = hanging

    def answers(self, version: str, finish_reason: str = "length") -> None:
        self.fault = lambda request: answer(request, version, finish_reason)

    def recovers(self) -> None:
        self.fault = None


@dataclass
class FakeClient:
    engines: dict[str, FakeEngine] = field(default_factory=dict)

    async def generate(self, url: str, request: TurnRequest, timeout_seconds: float) -> EngineAnswer:
        engine = self.engines[url]
        engine.seen.append(request)
        await asyncio.sleep(0)
        if engine.fault is not None:
            outcome = engine.fault(request)
            outcome = await outcome if asyncio.iscoroutine(outcome) else outcome
            if isinstance(outcome, EngineAnswer):
                return outcome
        return answer(request, engine.version)


def answer(request: TurnRequest, version: str, finish_reason: str = "length") -> EngineAnswer:
    seed, count = request.sampling["sampling_seed"], request.sampling["max_new_tokens"]
    tokens = [(seed >> shift) % 10 for shift in range(count)]
    return EngineAnswer(tokens, [-0.5] * count, [version], finish_reason)


def failing(request: TurnRequest) -> None:
    raise EngineFailure("broken")


async def hanging(request: TurnRequest) -> None:
    await asyncio.sleep(3600)


def prompts(index: int) -> dict:
    return {"tokens": [index % 10, 11]}


async def rollout(prompt, episode) -> float:
    first = await episode.generate(max_new_tokens=2)
    episode.observe([12])
    second = await episode.generate(max_new_tokens=2)
    return float(sum(first.tokens + second.tokens))


@dataclass
class Job:
    """Managers at work, with handles on everything around them."""

    managers: Managers
    client: FakeClient
    work: asyncio.Task[None]
    stopped: bool = False

    def fake(self, pod: str) -> FakeEngine:
        return self.client.engines.setdefault(f"http://{pod}", FakeEngine())

    async def until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        for _ in range(int(seconds / 0.005)):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it did not happen in time")

    async def states(self) -> dict[str, int]:
        return (await self.managers.audit())["trajectories"]

    def engine(self, pod: str, version: str = "0.0", state: str = "Serving", uid: str = "u1") -> bool:
        url = f"http://{pod}"
        self.fake(pod).version = version
        parsed = Version.parse(version) if version else None
        report = EngineReport(pod, uid, url, parsed, EngineState(state))
        return self.managers.register(report)["admitted"]

    async def announce(self, version: str) -> None:
        await self.managers.versions.announce(Announcement(Version.parse(version), "root", {"at": "trainer"}))

    async def batch(self, epoch: int, step: int, rank: int = 0, world_size: int = 1, wait: float = 5.0):
        return await self.managers.requests.take_batch(epoch, step, rank, world_size, wait)

    async def train(self, epoch: int, step: int) -> str:
        """One step as a trainer does it: batch, commit, publish."""
        batch = await self.batch(epoch, step)
        assert batch is not None
        await self.managers.commit(step, epoch, batch.batch, {"0": "d"}, {"loss": 0.1})
        await self.announce(f"{epoch}.{step + 1}")
        return batch.batch

    async def stop(self) -> None:
        """As a SIGKILL looks from the ledger: whatever was not written is gone."""
        self.stopped = True
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)
        await self.managers.close()


Start = Callable[..., Awaitable[Job]]


@pytest.fixture
def config(tmp_path: Path) -> ManagerConfig:
    return ManagerConfig(
        ledger=tmp_path / "ledger.sqlite",
        prompts="conftest:prompts",
        rollout="conftest:rollout",
        prompts_per_step=2,
        samples_per_prompt=3,
        max_staleness=1,
        steps=4,
        concurrency=6,
        turn_timeout_seconds=1,
        episode_timeout_seconds=5,
    )


@pytest.fixture
async def start_job(config: ManagerConfig) -> AsyncIterator[Start]:
    jobs: list[Job] = []

    async def start(rollout=rollout, client: FakeClient | None = None, prompts=prompts, **changes: object) -> Job:
        client = client or FakeClient()
        managers = Managers(replace(config, **changes), UserFunctions(prompts, rollout), client)
        await managers.load()
        jobs.append(Job(managers, client, asyncio.create_task(managers.run())))
        return jobs[-1]

    yield start
    for job in jobs:
        if not job.stopped:
            await job.stop()
