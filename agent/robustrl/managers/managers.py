"""The managers together: built from the ledger, run as one, and looked at as one."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robustrl.audit import record, report, snapshot
from robustrl.audit.record import BadLedger
from robustrl.managers import batches, fence, groups, ledger, rollback
from robustrl.managers.agent_worker import AgentWorkers, UserFunctions
from robustrl.managers.config import ManagerConfig
from robustrl.managers.engine_client import EngineClient
from robustrl.managers.ledger import Ledger
from robustrl.managers.refusal import Refused
from robustrl.managers.request_manager import RequestManager, RolloutsFail
from robustrl.managers.rollout_manager import Engine, EngineReport, RolloutManager
from robustrl.managers.versions import Announcement, Versions
from robustrl_api.version import Version

log = logging.getLogger(__name__)


class Managers:
    """One job's managers. ``load`` takes over the ledger, ``run`` works until something fails or it is
    cancelled."""

    def __init__(
        self,
        config: ManagerConfig,
        functions: UserFunctions,
        client: EngineClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._wall_clock = wall_clock
        self._hopeless: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ledger = Ledger(config.ledger)
        self.requests = RequestManager(self.ledger, config, on_hopeless=self._give_up, clock=clock)
        self.versions = Versions(self.ledger, self._on_version, clock)
        self.rollouts = RolloutManager(
            client,
            max_staleness=config.staleness,
            turn_timeout_seconds=config.turn_timeout_seconds,
            is_known=self.versions.is_known,
            clock=clock,
        )
        self.workers = AgentWorkers(config, functions, self.ledger, self.requests, self.rollouts, clock)

    async def load(self) -> None:
        """Take over what the ledger has.

        Raises:
            ConfigError: the ledger belongs to a job of another shape.
        """
        await self.ledger.run(lambda db: ledger.claim(db, self.config), durable=True)
        await asyncio.to_thread(self._drop_snapshots)
        await self.requests.load()
        await self.versions.load()
        self.rollouts.tokens_total = await self.ledger.run(groups.generated_total)

    async def run(self) -> None:
        """Work.

        Raises:
            RolloutsFail: the user's rollouts fail and fail.
        """
        work = asyncio.create_task(self.workers.run())
        try:
            await asyncio.wait([work, self._hopeless], return_when=asyncio.FIRST_COMPLETED)
            await (self._hopeless if self._hopeless.done() else work)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def close(self) -> None:
        await self.ledger.close()

    # -- what trainers and agents ask for --------------------------------------------------------------------

    async def join(self, epoch: int) -> dict[str, Any]:
        """Raise the fence to ``epoch`` and say what it restores and which step comes next."""

        def admit(db: Any) -> tuple[batches.Checkpoint | None, int]:
            fence.admit(db, epoch)
            return batches.newest_checkpoint(db), batches.next_step(db)

        newest, step = await self.ledger.run(admit, durable=True)
        restore = newest and {"epoch": newest.epoch, "step": newest.step, "digests": newest.digests}
        return {"restore": restore, "step": step}

    async def roll_back(self, epoch: int, step: int) -> dict[str, Any]:
        """Go back to the checkpoint after ``step`` steps, and say what the epoch restores now."""
        undone = await self.ledger.run(lambda db: rollback.roll_back(db, epoch, step), durable=True)
        if undone:
            log.warning("no copy of the checkpoints after step %d is left: %d steps are trained again", step, undone)
        self.requests.rolled_back(step)
        return await self.join(epoch)

    async def commit(self, step: int, epoch: int, batch: str, digests: dict[str, str], metrics: Any) -> int:
        return await self.requests.commit(
            epoch=epoch, step=step, batch=batch, digests=digests, metrics=metrics, now=self._wall_clock()
        )

    async def set_roster(self, epoch: int, rollouts: list[str]) -> None:
        await self.ledger.run(lambda db: fence.admit(db, epoch), durable=True)
        self.rollouts.set_roster(rollouts)

    def register(self, report: EngineReport) -> dict[str, Any]:
        engine = self.rollouts.register(report)
        current = self.rollouts.current
        return {
            "admitted": engine is not None and engine.admitted,
            "current": "" if current is None else str(current),
            "running": 0 if engine is None else len(engine.calls),
        }

    async def current_version(self, after: Version | None, wait_seconds: float) -> dict[str, Any] | None:
        found = await self.versions.newer_than(after, wait_seconds)
        return None if found is None else self._described(found)

    # -- what people and the operator look at ----------------------------------------------------------------

    async def progress(self) -> dict[str, Any]:
        def look(db: Any) -> tuple[int, dict[str, int], tuple[float | None, dict[str, Any]]]:
            return fence.current(db), groups.by_state(db), batches.last_commit(db)

        epoch, states, (reward_mean, metrics) = await self.ledger.run(look)
        current = self.rollouts.current
        return {
            "step": self.requests.next_step,
            "steps": self.config.steps,
            "epoch": epoch,
            "version": "" if current is None else str(current),
            "reward_mean": reward_mean,
            "metrics": metrics,
            "tokens_total": self.rollouts.tokens_total,
            "rerouted_total": self.rollouts.rerouted_total,
            "episodes_running": self.workers.episodes_running,
            "engines": [_engine(engine) for engine in self.rollouts.engines],
            "groups": states,
            "weights": self._spread(),
            "error": self.requests.error,
        }

    async def curve(self) -> list[dict[str, Any]]:
        return await self.ledger.run(batches.curve)

    async def audit(self) -> dict[str, Any]:
        """The proof from the ledger, read beside its writer."""
        return await asyncio.to_thread(lambda: report.as_json(report.of(record.read(self.config.ledger))))

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Path]:
        """A copy of the ledger beside it, for as long as the block lasts.

        Raises:
            Refused: it cannot be made, for want of room on the volume most likely.
        """
        with tempfile.TemporaryDirectory(prefix=self._snapshot_prefix, dir=self.config.ledger.parent) as folder:
            copy = Path(folder) / "ledger.sqlite"
            try:
                await asyncio.to_thread(snapshot.take, self.config.ledger, copy)
            except (OSError, BadLedger) as error:
                raise Refused("NoSnapshot", f"the ledger cannot be copied: {error}", status=507) from error
            yield copy

    @property
    def _snapshot_prefix(self) -> str:
        """Of this ledger's alone: others may be in the folder."""
        return f"snapshot-{self.config.ledger.name}-"

    def _drop_snapshots(self) -> None:
        """Those that a killed process was about to send: each takes as much room as the ledger."""
        for left in self.config.ledger.parent.glob(f"{glob.escape(self._snapshot_prefix)}*"):
            shutil.rmtree(left, ignore_errors=True)

    def _described(self, announcement: Announcement) -> dict[str, Any]:
        return {
            "epoch": announcement.version.epoch,
            "step": announcement.version.step,
            "root": announcement.root,
            "publisher": announcement.publisher,
            "holders": self.versions.holders.addresses(announcement.root),
        }

    def _spread(self) -> dict[str, float]:
        """How well the current weights are spread over the rollouts."""
        current = self.versions.current
        return {} if current is None else asdict(self.versions.holders.coverage(current.root))

    def _on_version(self, version: Version) -> None:
        self.rollouts.set_current(version)
        self.requests.published(version.step)

    def _give_up(self, reason: RolloutsFail) -> None:
        if not self._hopeless.done():
            self._hopeless.set_exception(reason)


def _engine(engine: Engine) -> dict[str, Any]:
    report = engine.report
    return {
        "pod": report.pod,
        "url": report.url,
        "admitted": engine.admitted,
        "version": "" if report.version is None else str(report.version),
        "state": report.state.value,
        "running": len(engine.calls),
        "tokens_total": engine.tokens_total,
        "failures": engine.failures,
    }
