"""The rollout manager: which engines may answer, which one gets the next turn, and what happens when it does not.

Admission. A new or returning engine is admitted once its weights are current: the current version, or the one that
was current when it began to pull (else a trainer faster than a pull would keep it out for ever). An admitted one
stays so while it lags by no more than ``max_staleness`` steps. It is given turns only while admitted, alive and not
applying weights. A failed call quarantines it until it has registered at the current version again, later each time.

Routing. The admitted engine with the fewest calls in flight. An engine that leaves, is dropped from the roster or
returns as another process loses its calls at once, and each is made again elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from robustrl.managers.engine_client import (
    EngineAnswer,
    EngineClient,
    EngineFailure,
    RequestRejected,
    TurnRequest,
)
from robustrl.managers.pulse import Pulse, within
from robustrl_api.version import Version

log = logging.getLogger(__name__)

_LEASE_SECONDS = 10.0
"""An engine whose agent has been silent for so long gets no new turns; agents report every second."""

_BACKOFF_SECONDS = (0.05, 1.0)
_QUARANTINE_SECONDS = (1.0, 60.0)


class EngineState(StrEnum):
    """What the engine's agent says it is doing."""

    STARTING = "Starting"
    SERVING = "Serving"
    PULLING = "Pulling"
    APPLYING = "Applying"
    LEAVING = "Leaving"
    """Its pod is about to go: it answers what it has been asked and is asked nothing more."""


_ASKED_NOTHING = frozenset({EngineState.APPLYING, EngineState.LEAVING})


class NoEngine(Exception):
    """No engine gave an answer before the deadline. Nobody's fault but the engines'."""


@dataclass(frozen=True)
class EngineReport:
    """One registration: who, where, with which weights, doing what."""

    pod: str
    uid: str
    url: str
    version: Version | None
    state: EngineState


@dataclass(eq=False)
class Engine:
    """An engine as the manager knows it. ``calls`` are the turns in flight."""

    report: EngineReport
    last_seen: float
    admitted: bool = False
    target: Version | None = None  # current when it began to pull or apply
    failures: int = 0
    quarantined_until: float | None = None
    tokens_total: int = 0
    calls: set[asyncio.Task[EngineAnswer]] = field(default_factory=set)


class RolloutManager:
    """Engines and the turns given to them.

    Args:
        client: how engines are called.
        max_staleness: steps an admitted engine may lag behind the current version.
        turn_timeout_seconds: deadline of one call.
        is_known: whether weights of that name were ever announced; answers drawn by others are refused.
        clock: seconds, monotonic.
        tokens_total: tokens generated before this process started.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        max_staleness: int,
        turn_timeout_seconds: float,
        is_known: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
        tokens_total: int = 0,
    ) -> None:
        self._client = client
        self._max_staleness = max_staleness
        self._turn_timeout = turn_timeout_seconds
        self._is_known = is_known
        self._clock = clock
        self._current: Version | None = None
        self._engines: dict[str, Engine] = {}
        self._roster: frozenset[str] | None = None
        self._changed = Pulse()
        self.tokens_total = tokens_total
        self.rerouted_total = 0

    # -- what agents and trainers say ------------------------------------------------------------------------

    @property
    def current(self) -> Version | None:
        return self._current

    @property
    def engines(self) -> list[Engine]:
        return [self._engines[pod] for pod in sorted(self._engines)]

    def set_current(self, version: Version) -> None:
        """New weights are published: engines that now lag too far lose their admission."""
        self._current = version
        for engine in self._engines.values():
            self._review(engine)
        self._changed.fire()

    def register(self, report: EngineReport) -> Engine | None:
        """Take an engine's report. None if the pod is not in the roster."""
        if self._roster is not None and report.pod not in self._roster:
            return None
        known = self._engines.get(report.pod)
        if known is not None and (known.report.uid, known.report.url) != (report.uid, report.url):
            self.drop(report.pod, "returned as another process")
            known = None
        engine = known or self._engines.setdefault(report.pod, Engine(report, self._clock()))
        self._note_target(engine, report)
        engine.report, engine.last_seen = report, self._clock()
        if report.state is EngineState.STARTING:
            _reroute(engine)  # its process is a new one: it knows nothing of these calls
        self._review(engine)
        self._changed.fire()
        return engine

    def drop(self, pod: str, reason: str) -> None:
        """Forget an engine; its calls are made again elsewhere at once."""
        if engine := self._engines.pop(pod, None):
            log.info("engine %s %s: %d calls are re-routed", pod, reason, len(engine.calls))
            _reroute(engine)

    def set_roster(self, pods: Iterable[str]) -> None:
        """Only these pods may answer from now on."""
        self._roster = frozenset(pods)
        for pod in self._engines.keys() - self._roster:
            self.drop(pod, "left the roster")

    # -- admission -------------------------------------------------------------------------------------------

    def _note_target(self, engine: Engine, report: EngineReport) -> None:
        if report.state in (EngineState.PULLING, EngineState.APPLYING) and engine.target is None:
            engine.target = self._current

    def _review(self, engine: Engine) -> None:
        was = engine.admitted
        if engine.report.state is EngineState.STARTING or self._lag(engine) is None:
            engine.admitted = False
        elif engine.admitted:
            engine.admitted = self._within_staleness(engine)
        else:
            engine.admitted = self._may_enter(engine)
        if engine.admitted and engine.report.state is EngineState.SERVING:
            engine.target = None
        if was != engine.admitted:
            verb = "admitted" if engine.admitted else "no longer admitted"
            log.info("engine %s %s at version %s", engine.report.pod, verb, engine.report.version)

    def _may_enter(self, engine: Engine) -> bool:
        if engine.report.state not in (EngineState.SERVING, EngineState.PULLING):
            return False
        if engine.quarantined_until is not None and self._clock() < engine.quarantined_until:
            return False
        version = engine.report.version
        fresh = version == self._current or (
            version is not None and engine.target is not None and version >= engine.target
        )
        if fresh and self._within_staleness(engine):
            engine.quarantined_until = None
            return True
        return False

    def _lag(self, engine: Engine) -> int | None:
        """Steps behind the current version; None where there is nothing to compare."""
        if self._current is None or engine.report.version is None:
            return None
        return self._current.step - engine.report.version.step

    def _within_staleness(self, engine: Engine) -> bool:
        lag = self._lag(engine)
        return lag is not None and 0 <= lag <= self._max_staleness

    def _quarantine(self, engine: Engine, why: BaseException) -> None:
        if engine.quarantined_until is not None:
            return  # the rest of the calls that it failed at once are the same failure
        first, longest = _QUARANTINE_SECONDS
        wait = min(longest, first * 2.0 ** min(engine.failures, 10)) * random.uniform(0.8, 1.2)
        log.warning("engine %s in quarantine for %.1f s: %s", engine.report.pod, wait, why)
        engine.failures += 1
        engine.admitted = False
        engine.target = None
        engine.quarantined_until = self._clock() + wait

    # -- turns -----------------------------------------------------------------------------------------------

    async def generate(self, request: TurnRequest, deadline: float) -> EngineAnswer:
        """One turn from whichever engine can give it, tried again elsewhere until ``deadline`` (of the
        clock).

        Raises:
            NoEngine: the deadline passed.
            RequestRejected: the request itself is wrong.
        """
        attempt = 0
        while True:
            engine = await self._pick(deadline)
            try:
                return await self._ask(engine, request, deadline)
            except EngineFailure as failure:
                attempt += 1
                self.rerouted_total += 1
                log.info("turn %s is done again (%d): %s", request.rid, attempt, failure)
            await asyncio.sleep(_backoff(attempt))

    async def _pick(self, deadline: float) -> Engine:
        while True:
            remaining = deadline - self._clock()
            if remaining <= 0:
                raise NoEngine("no engine was admitted in time")
            changed = self._changed.next()
            routable = [engine for engine in self._engines.values() if self._is_routable(engine)]
            if routable:
                return min(routable, key=lambda engine: (len(engine.calls), engine.report.pod))
            await within(changed, remaining)

    def _is_routable(self, engine: Engine) -> bool:
        alive = self._clock() - engine.last_seen < _LEASE_SECONDS
        return alive and engine.admitted and engine.report.state not in _ASKED_NOTHING

    async def _ask(self, engine: Engine, request: TurnRequest, deadline: float) -> EngineAnswer:
        call = asyncio.create_task(self._client.generate(engine.report.url, request, self._turn_timeout))
        engine.calls.add(call)
        try:
            finished, _ = await asyncio.wait([call], timeout=max(0.0, deadline - self._clock()))
        finally:  # also when the episode itself is cancelled: the engine is told by the broken connection
            engine.calls.discard(call)
            call.cancel()
        if not finished:  # the episode ran out of time, which is nothing against this engine
            raise NoEngine("the episode's deadline passed during a turn")
        if call.cancelled():
            raise EngineFailure(f"engine {engine.report.pod} is gone")
        return self._judge(engine, call)

    def _judge(self, engine: Engine, call: asyncio.Task[EngineAnswer]) -> EngineAnswer:
        failure = call.exception()
        if isinstance(failure, RequestRejected):
            raise failure
        if failure is not None:
            self._quarantine(engine, failure)
            raise failure if isinstance(failure, EngineFailure) else EngineFailure(repr(failure)) from failure
        answer = call.result()
        if answer.finish_reason == "abort":  # ordinary around a weight update; says nothing against the engine
            raise EngineFailure(f"engine {engine.report.pod} aborted it")
        if strange := [version for version in answer.versions if not self._is_known(version)]:
            refusal = EngineFailure(f"engine {engine.report.pod} drew with unknown weights {strange}")
            self._quarantine(engine, refusal)
            raise refusal
        engine.failures = 0
        engine.tokens_total += len(answer.tokens)
        self.tokens_total += len(answer.tokens)
        return answer


def _reroute(engine: Engine) -> None:
    """End the engine's calls; whoever made them makes them again elsewhere."""
    for call in engine.calls:
        call.cancel()


def _backoff(attempt: int) -> float:
    first, longest = _BACKOFF_SECONDS
    return min(longest, first * 2.0 ** min(attempt - 1, 10)) * random.uniform(0.5, 1.0)
