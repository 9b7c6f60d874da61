"""Plays a storm of faults on a job that runs on this machine, and says what it saw as it goes.

A fault strikes only what is up, so that it is known to have struck; whether anything broke is judged each time the job
is well again (`bout`). The storm is over before the job ends, so that the end is the job's own. How long it blows is
counted in steps: a slow machine meets more faults and longer recoveries on its way, but the same job.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from robustrl_api.status import ConditionType, Incident, holds
from robustrl_operator.faults.kind import FaultKind
from robustrl_operator.faults.matrix import Moment, Place, Row, rows
from robustrl_operator.local.run import LocalRun, now
from robustrl_operator.report.incidents import stage_seconds
from robustrl_operator.soak.bout import MOST_AT_ONCE, Scene, Strike, incidents_at_least, judge, taken_for
from robustrl_operator.soak.sight import Sight
from robustrl_operator.soak.storm import Storm
from robustrl_operator.view import timestamp

T = TypeVar("T")

POLL_SECONDS = 0.1
CALM_SHARE = 0.2
"""The last part of the job is left in peace."""
STEPS_BETWEEN = 2
"""Steps that a job has made since its last fault when it is well."""
STUCK_SECONDS = 300.0
"""The longest that anything may take before the job counts as stuck."""
UNJUDGED_SECONDS = 60.0
"""A job that reaches its end so soon after a fault need not have been over it; the calm before its end is usually
longer."""

SLOW_TO_SHOW = frozenset({FaultKind.WORKER_MEMORY})
"""They strike alone: a process without memory fails only when it wants more, which may be after another's end."""
STORM_ROWS = tuple(row for row in rows(Place.LOCAL) if row.moment is Moment.ANY)
"""Faults that can strike at any moment; two in one step come about by themselves."""


@dataclass
class Outcome:
    """What a storm did to a job.

    Attributes:
        struck: how often each row of the matrix was played, by name.
        together: faults that struck before the job was over the one before.
        findings: promises that were broken, in words.
    """

    struck: Counter[str] = field(default_factory=Counter)
    together: int = 0
    findings: list[str] = field(default_factory=list)


class Stuck(Exception):
    """The job did not get over a fault."""


class _Succeeded(Exception):
    """The job has reached its end."""


class Soak:
    """One storm on one job.

    Args:
        run: the job, started.
        say: takes each line of the account.
    """

    def __init__(self, run: LocalRun, storm: Storm, say: Callable[[str], None]) -> None:
        self._run, self._storm, self._say = run, storm, say
        self._sight = Sight(run)
        self._began = asyncio.get_running_loop().time()
        self._next = self._quiet_from = 0.0
        self._struck_at_step = 0
        self._judged = timestamp(now())
        self.outcome = Outcome()

    async def blow(self) -> Outcome:
        """Make faults until the job nears its end, then wait for that.

        Raises:
            Stuck: the job did not get over a fault in time.
        """
        try:
            await self._until(lambda: self._sight.is_well(STEPS_BETWEEN))
            self._schedule()
            while not self._over():
                await self._bout()
            self._tell(f"the storm is over after {self.outcome.struck.total()} faults")
            await self._until_end()
            self._judge_quiet()
        except _Succeeded:
            self._ended_early()
        return self.outcome

    # One bout: from a moment at which the job is well to the next.

    async def _bout(self) -> None:
        found: Row | bool | None = await self._until(lambda: self._drawn([]) or self._over())
        self._judge_quiet()
        before, since = self._sight.scene(), timestamp(now())
        strikes: list[Strike] = []
        while isinstance(found, Row):
            strikes.append(await self._strike(found, late=bool(strikes)))
            found = await self._until(lambda: self._drawn(strikes) or self._is_over_it(strikes, before, since))
        if strikes:
            self._conclude(before, strikes, since)

    def _drawn(self, strikes: list[Strike]) -> Row | None:
        """The fault that strikes next, if one is due and may join those that the job is not over yet."""
        if self._seconds() < self._next or len(strikes) >= MOST_AT_ONCE or self._over():
            return None
        hit = frozenset[str]().union(*(strike.hit for strike in strikes))
        alone = any(strike.row.kind in SLOW_TO_SHOW for strike in strikes)
        may = [row for row in STORM_ROWS if not strikes or not (alone or row.kind in SLOW_TO_SHOW)]
        return self._storm.draw(lambda row: row in may and self._can_strike(row, hit))

    def _can_strike(self, row: Row, hit: frozenset[str]) -> bool:
        """Whether all that it would hit is up and was not hit a moment ago."""
        targets = self._sight.targets(row)
        return bool(targets) and not targets & hit and all(map(self._sight.is_up, targets))

    async def _strike(self, row: Row, *, late: bool) -> Strike:
        hit = self._sight.targets(row)
        names = await self._run.strike(row.kind, row.index)
        self._schedule()
        self.outcome.struck[row.name] += 1
        self.outcome.together += late
        self._tell(f"{row.name} strikes {', '.join(names)}" + (", before the job is over the last one" if late else ""))
        self._quiet_from = max(self._quiet_from, self._seconds() + row.seconds)
        self._struck_at_step = self._run.step
        return Strike(row, hit)

    def _is_over_it(self, strikes: list[Strike], before: Scene, since: str) -> bool:
        whole_job = self._run.status.attempt > before.attempt
        told = len(self._sight.incidents(since)) >= incidents_at_least(strikes, whole_job=whole_job)
        return (
            told and self._seconds() >= self._quiet_from and self._sight.is_well(self._struck_at_step + STEPS_BETWEEN)
        )

    def _conclude(self, before: Scene, strikes: list[Strike], since: str) -> None:
        incidents, after = self._sight.incidents(since), self._sight.scene()
        for incident in incidents:
            self._tell(f"  {_told(incident)}")
        again = after.attempt - before.attempt
        self._tell("  well again" + (", the whole job restarted" if again else "") + f" in epoch {after.epoch}")
        names = " and ".join(strike.row.name for strike in strikes)
        self._broken(f"{names} after step {before.step}", judge(before, after, strikes, incidents))
        self._judged = timestamp(now())

    def _judge_quiet(self) -> None:
        """Since the job was over the last fault nothing was struck, so nothing may have been found."""
        self._broken("nothing was struck", [taken_for(incident) for incident in self._sight.incidents(self._judged)])

    def _ended_early(self) -> None:
        """Before it was over the last fault. What the ledger must hold at the end is asked for all the same."""
        since = self._seconds() - self._quiet_from
        self._tell(f"the job reached its end {since:.0f} s after the last fault, which is not judged")
        if since > UNJUDGED_SECONDS:
            self._broken("the last fault", [f"the job was not over it after {since:.0f} s: {self._sight.words()}"])

    def _broken(self, what: str, findings: Iterable[str]) -> None:
        for finding in findings:
            self._tell(f"  BROKEN: {finding}")
            self.outcome.findings.append(f"{what}: {finding}")

    # Time.

    def _seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def _schedule(self) -> None:
        self._next = self._seconds() + self._storm.gap_seconds()

    def _over(self) -> bool:
        return self._run.step >= self._run.job.spec.steps * (1 - CALM_SHARE)

    async def _until(self, what: Callable[[], T]) -> T:
        """What it says, once that is true.

        Raises:
            _Succeeded: the job reached its end instead.
            Stuck: it failed, or nothing comes of it.
        """
        deadline = self._seconds() + STUCK_SECONDS
        while not (found := what()):
            if holds(self._run.status, ConditionType.SUCCEEDED):
                raise _Succeeded
            if self._run.ended():
                raise Stuck(f"the job ended in the storm: {self._sight.words()}")
            if self._seconds() > deadline:
                raise Stuck(f"not well {STUCK_SECONDS:.0f} s after a fault: {self._sight.words()}")
            await asyncio.sleep(POLL_SECONDS)
        return found

    async def _until_end(self) -> None:
        while not self._run.ended():
            step = self._run.step
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    await self._run.until_step(step + 1)
            except TimeoutError:
                raise Stuck(f"no step for {STUCK_SECONDS:.0f} s after step {step}") from None

    def _tell(self, text: str) -> None:
        self._say(f"{self._seconds():7.1f} s  step {self._run.step:4d}  {text}")


def _told(incident: Incident) -> str:
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in stage_seconds(incident).items())
    return f"{incident.cause}: {incident.decision}; {times}"
