"""One operator acts, the others wait: a Lease, as Kubernetes' own controllers use it.

A candidate never compares clocks with another machine: it takes the lease over when the record has not changed for a
whole lease duration of its own monotonic clock. The holder gives up acting a little before others may begin: when it
has not managed to renew for `RENEW_DEADLINE_SECONDS`, counted from before the renewal was sent. Every write carries the
resource version that was read, so of two candidates one wins.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from robustrl_api.errors import describe

log = logging.getLogger(__name__)

NAME = "robustrl-operator"
DURATION_SECONDS = 3
RENEW_DEADLINE_SECONDS = 2.0
RETRY_SECONDS = 0.5
OVER_SECONDS = 0.01
"""After a lease has run out it is certain that it has."""
CALL_SECONDS = 1.0
CONFLICT, NOT_FOUND = 409, 404


class LeaseLost(Exception):
    """Somebody else may act now; this operator must not."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A record, and when it was first seen as it is (monotonic seconds)."""

    holder: str
    renewals: str
    """Changes with each renewal."""
    since: float


@dataclass(frozen=True, slots=True)
class Predecessor:
    """Who had the lease before and let it run out, and for how long it was seen not to be renewed."""

    holder: str
    silent_seconds: float


def may_take(observed: Observed | None, me: str, now: float) -> bool:
    """Whether a candidate may write itself into the lease: nobody holds it, it is its own, or it has run out."""
    if observed is None or observed.holder in ("", me):
        return True
    return now - observed.since > DURATION_SECONDS


def observe(before: Observed | None, holder: str, renewals: str, now: float) -> Observed:
    """What is known after looking at the record once more."""
    if before is not None and (before.holder, before.renewals) == (holder, renewals):
        return before
    return Observed(holder, renewals, now)


class Elector:
    """This operator's part in the election.

    Args:
        me: identity, unique among operators.
    """

    def __init__(
        self, client: AsyncClient, namespace: str, me: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._namespace, self._me, self._clock = client, namespace, me, clock
        self._observed: Observed | None = None
        self._renewed = 0.0
        self._answered_since = clock()
        self._given_back = False
        self.leading = False
        self.predecessor: Predecessor | None = None
        """None where the lease was free, or this operator's own before."""

    def holds(self) -> bool:
        """Whether this operator may act now. Told by the clock alone: also after its process stood still."""
        return self.leading and self._left() > 0

    def _left(self) -> float:
        """Seconds for which the last renewal still allows to act."""
        return self._renewed + RENEW_DEADLINE_SECONDS - self._clock()

    async def lead(self) -> None:
        """Wait until this operator holds the lease. It may be called again once the lease was lost."""
        while not await self._try(CALL_SECONDS):  # noqa: ASYNC110 - the lease is another machine's news
            await asyncio.sleep(self._until_next_look())
        self.leading = True
        log.info("%s leads", self._me)

    def _until_next_look(self) -> float:
        """Seconds; the last look is at the moment at which the lease runs out, if it is not renewed by then."""
        usual = RETRY_SECONDS * random.uniform(0.8, 1.2)
        left = self._observed.since + DURATION_SECONDS - self._clock() if self._observed else 0.0
        return min(usual, left + OVER_SECONDS) if left > 0 else usual

    async def keep(self) -> None:
        """Renew for as long as that works.

        Raises:
            LeaseLost: it no longer does. No later than `RENEW_DEADLINE_SECONDS` after the last renewal was sent.
        """
        while self.holds():
            await asyncio.sleep(min(RETRY_SECONDS * random.uniform(0.8, 1.2), max(0.0, self._left())))
            if not await self._try(max(0.0, min(CALL_SECONDS, self._left()))) and not self._mine():
                break
        self.leading = False
        raise LeaseLost(f"{self._me} could not renew its lease")

    async def release(self) -> None:
        """Give the lease back, so that the next one need not wait for it to run out."""
        self._given_back = True
        if not self.leading:
            return
        self.leading = False
        try:
            async with asyncio.timeout(CALL_SECONDS):
                while not await self._give_back():
                    log.info("the lease was renewed while it was given back: once more")
        except (ApiError, httpx2.HTTPError, TimeoutError) as error:
            log.warning("the lease was not given back: %s", describe(error))

    async def _give_back(self) -> bool:
        """Whether it is given back; not where a renewal that was under way came between."""
        lease = await self._client.get(Lease, NAME, namespace=self._namespace)
        if not lease.spec or lease.spec.holderIdentity != self._me:
            return True
        lease.spec.holderIdentity = ""
        try:
            await self._client.replace(lease)
        except ApiError as error:
            if error.status.code != CONFLICT:
                raise
            return False
        return True

    def _mine(self) -> bool:
        return self._observed is not None and self._observed.holder == self._me

    async def _try(self, seconds: float) -> bool:
        """One look at the lease, and one write if it may be taken or renewed. Whether it is ours now."""
        asked = self._clock()
        try:
            async with asyncio.timeout(seconds):
                held = await self._look_and_take()
        except ApiError as error:
            if error.status.code != CONFLICT:
                log.warning("lease: %s", error.status.message)
        except (httpx2.HTTPError, TimeoutError) as error:
            log.warning("lease: the API server does not answer: %s", describe(error))
        else:
            self._renewed = asked if held else self._renewed
            return held
        # Who cannot reach the API server now may have been silent for no other reason.
        self._answered_since = self._clock()
        return False

    async def _look_and_take(self) -> bool:
        lease = await self._read()
        if lease is None:
            made = self._fresh()
            await self._client.create(made)
            self.predecessor = None
            self._note(made)
            return True
        spec = lease.spec or LeaseSpec()
        self._note(lease)
        if self._given_back or not may_take(self._observed, self._me, self._clock()):
            return False
        transitions = (spec.leaseTransitions or 0) + (spec.holderIdentity != self._me)
        lease.spec = self._spec(transitions)
        await self._client.replace(lease)
        if not self.leading:
            self.predecessor = self._silent_holder()
        self._note(lease)
        return True

    def _silent_holder(self) -> Predecessor | None:
        """Whose renewals have not come, though the API server would have told of them."""
        if self._observed is None or self._observed.holder in ("", self._me):
            return None
        since = max(self._observed.since, self._answered_since)
        return Predecessor(self._observed.holder, self._clock() - since)

    def _note(self, lease: Lease) -> None:
        spec = lease.spec or LeaseSpec()
        self._observed = observe(self._observed, spec.holderIdentity or "", str(spec.renewTime), self._clock())

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(Lease, NAME, namespace=self._namespace)
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return None
            raise

    def _fresh(self) -> Lease:
        return Lease(metadata=ObjectMeta(name=NAME, namespace=self._namespace), spec=self._spec(0))

    def _spec(self, transitions: int) -> LeaseSpec:
        return LeaseSpec(
            holderIdentity=self._me,
            leaseDurationSeconds=DURATION_SECONDS,
            leaseTransitions=transitions,
            renewTime=datetime.now(UTC),
        )
