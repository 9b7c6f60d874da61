"""Who may act: one operator at a time, the next within seconds, and nobody who cannot renew."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lightkube import ApiError
from lightkube.resources.coordination_v1 import Lease

from robustrl_operator.kubernetes import lease
from robustrl_operator.kubernetes.lease import (
    DURATION_SECONDS,
    Elector,
    LeaseLost,
    Observed,
    Predecessor,
    may_take,
    observe,
)

ME = "operator-a"


@pytest.mark.parametrize(
    ("observed", "now", "may"),
    [
        (None, 0.0, True),
        (Observed("", "t1", 0.0), 0.0, True),
        (Observed(ME, "t1", 0.0), 99.0, True),
        (Observed("operator-b", "t1", 0.0), DURATION_SECONDS, False),
        (Observed("operator-b", "t1", 0.0), DURATION_SECONDS + 0.1, True),
    ],
    ids=["no lease", "given back", "mine", "another's, still good", "another's, run out"],
)
def test_who_may_take_the_lease(observed: Observed | None, now: float, may: bool) -> None:
    assert may_take(observed, ME, now) is may


def test_a_lease_runs_out_by_the_observers_clock_since_its_last_renewal() -> None:
    seen = observe(None, "operator-b", "t1", 10.0)
    assert observe(seen, "operator-b", "t1", 12.0).since == 10.0
    assert observe(seen, "operator-b", "t2", 12.0).since == 12.0
    assert observe(seen, "operator-c", "t1", 12.0).since == 12.0


class Server:
    """Leases of an API server: a write needs the version that was read."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0
        self.away = False
        self.looks = 0

    async def get(self, kind: type, name: str, *, namespace: str) -> Lease:
        self.looks += 1
        if self.away:
            raise TimeoutError
        if self.lease is None:
            raise self._error(404)
        return copy.deepcopy(self.lease)

    async def create(self, new: Lease) -> None:
        if self.lease is not None:
            raise self._error(409)
        self._store(new)

    async def replace(self, new: Lease) -> None:
        if self.away:
            raise TimeoutError
        assert new.metadata
        if new.metadata.resourceVersion != str(self.version):
            raise self._error(409)
        self._store(new)

    def _store(self, new: Lease) -> None:
        self.version += 1
        self.lease = copy.deepcopy(new)
        assert self.lease.metadata
        self.lease.metadata.resourceVersion = str(self.version)

    @staticmethod
    def _error(code: int) -> ApiError:
        error = ApiError.__new__(ApiError)
        error.status = cast(Any, SimpleNamespace(code=code, message=f"status {code}"))
        return error

    @property
    def holder(self) -> str | None:
        assert self.lease
        assert self.lease.spec
        return self.lease.spec.holderIdentity


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Ten times as fast as in life."""
    for name in ("DURATION_SECONDS", "RENEW_DEADLINE_SECONDS", "RETRY_SECONDS", "CALL_SECONDS"):
        monkeypatch.setattr(lease, name, getattr(lease, name) / 10)
    return Server()


def elector(server: Server, name: str) -> Elector:
    return Elector(cast(Any, server), "robustrl-system", name)


async def test_of_many_candidates_one_leads(server: Server) -> None:
    candidates = [elector(server, f"operator-{n}") for n in range(5)]
    tasks = [asyncio.create_task(each.lead()) for each in candidates]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.1)
    assert sum(each.leading for each in candidates) == 1
    for task in tasks:
        task.cancel()


async def test_a_leader_that_is_gone_is_followed_within_the_duration_and_a_retry(server: Server) -> None:
    first, second = elector(server, "a"), elector(server, "b")
    await first.lead()
    async with asyncio.timeout(10 * (lease.DURATION_SECONDS + lease.RETRY_SECONDS)):
        await second.lead()
    assert server.holder == "b"


async def test_a_candidate_looks_when_the_lease_runs_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not when its own round of looks comes to it."""
    monkeypatch.setattr(lease, "RETRY_SECONDS", 0.8 * lease.DURATION_SECONDS)
    now = [100.0]
    sleeps: list[float] = []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(lease, "asyncio", SimpleNamespace(sleep=sleep, timeout=asyncio.timeout))
    await elector(server, "a").lead()
    second = Elector(cast(Any, server), "robustrl-system", "b", lambda: now[0])
    await second.lead()
    assert now[0] - 100.0 == pytest.approx(lease.DURATION_SECONDS + lease.OVER_SECONDS)
    assert len(sleeps) == 2


async def test_who_is_taken_over_from_was_silent_for_as_long_as_nothing_else_explains_it(server: Server) -> None:
    now = [100.0]
    first = elector(server, "a")
    await first.lead()
    second = Elector(cast(Any, server), "robustrl-system", "b", lambda: now[0])
    lead = asyncio.create_task(second.lead())
    await looked(server)
    now[0] += 1.1 * lease.DURATION_SECONDS
    await lead
    assert second.predecessor == Predecessor("a", pytest.approx(1.1 * lease.DURATION_SECONDS))

    third = Elector(cast(Any, server), "robustrl-system", "c", lambda: now[0])
    lead = asyncio.create_task(third.lead())
    await looked(server)
    server.away = True
    now[0] += lease.DURATION_SECONDS
    await looked(server)
    server.away = False
    now[0] += 0.2 * lease.DURATION_SECONDS
    await lead
    assert third.predecessor == Predecessor("b", pytest.approx(0.2 * lease.DURATION_SECONDS))


async def looked(server: Server) -> None:
    """A candidate has seen what the server knows, or does not tell, now."""
    looks = server.looks
    async with asyncio.timeout(60):
        while server.looks < looks + 2:  # noqa: ASYNC110 - the fake server tells nobody
            await asyncio.sleep(0.001)


async def test_nobody_fell_silent_where_the_lease_was_free_or_ones_own(server: Server) -> None:
    first, second = elector(server, "a"), elector(server, "b")
    await first.lead()
    assert first.predecessor is None
    await first.release()
    await second.lead()
    assert second.predecessor is None
    again = elector(server, "b")
    await again.lead()
    assert again.predecessor is None


async def test_a_leader_that_renews_is_not_followed(server: Server) -> None:
    first, second = elector(server, "a"), elector(server, "b")
    await first.lead()
    keep, lead = asyncio.create_task(first.keep()), asyncio.create_task(second.lead())
    await asyncio.sleep(3 * lease.DURATION_SECONDS)
    assert server.holder == "a"
    assert not lead.done()
    keep.cancel()
    lead.cancel()


async def test_a_lease_given_back_is_taken_at_once(server: Server) -> None:
    first, second = elector(server, "a"), elector(server, "b")
    await first.lead()
    await first.release()
    assert server.holder == ""
    await second.lead()
    assert server.holder == "b"
    assert not first.leading


async def test_a_renewal_that_comes_between_does_not_keep_the_lease(server: Server) -> None:
    first = elector(server, "a")
    await first.lead()
    get = server.get

    async def renewed_meanwhile(kind: type, name: str, *, namespace: str) -> Lease:
        seen = await get(kind, name, namespace=namespace)
        server.get = get  # type: ignore[method-assign]
        await server.replace(copy.deepcopy(seen))
        return seen

    server.get = renewed_meanwhile  # type: ignore[method-assign]
    await first.release()
    assert server.holder == ""


async def test_who_cannot_renew_stops_acting_before_another_may_begin(server: Server) -> None:
    first = elector(server, "a")
    await first.lead()
    server.away = True
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(10 * lease.DURATION_SECONDS):
            await first.keep()
    assert not first.leading
    assert lease.RENEW_DEADLINE_SECONDS < lease.DURATION_SECONDS


async def test_whether_one_may_act_is_told_by_the_clock_alone(server: Server) -> None:
    """A process that stood still for long must not act before its timers tell it what has happened."""
    now = [100.0]
    first = Elector(cast(Any, server), "robustrl-system", "a", lambda: now[0])
    assert not first.holds()
    await first.lead()
    assert first.holds()
    now[0] += lease.RENEW_DEADLINE_SECONDS - 0.01
    assert first.holds()
    now[0] += 0.02
    assert not first.holds()


async def test_the_deadline_counts_from_before_a_renewal_that_took_long(server: Server) -> None:
    now = [100.0]
    first = Elector(cast(Any, server), "robustrl-system", "a", lambda: now[0])
    replace = server.replace

    async def slowly(new: Lease) -> None:
        now[0] += 0.9 * lease.RENEW_DEADLINE_SECONDS
        await replace(new)

    await first.lead()
    server.replace = slowly  # type: ignore[method-assign]
    keep = asyncio.create_task(first.keep())
    while now[0] == 100.0:  # noqa: ASYNC110 - the fake clock tells nobody
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.001)
    assert first.holds()
    now[0] += 0.11 * lease.RENEW_DEADLINE_SECONDS
    assert not first.holds(), "others count from the moment at which the renewal was written, not answered"
    keep.cancel()
    await asyncio.gather(keep, return_exceptions=True)


async def test_who_made_the_lease_survives_one_call_without_an_answer(server: Server) -> None:
    first = Elector(cast(Any, server), "robustrl-system", "a", lambda: 100.0)
    await first.lead()
    server.away = True
    keep = asyncio.create_task(first.keep())
    await asyncio.sleep(1.5 * lease.RETRY_SECONDS)
    server.away = False
    async with asyncio.timeout(60):
        while server.version == 1:  # noqa: ASYNC110 - the fake server tells nobody
            await asyncio.sleep(0.01)
    assert not keep.done()
    assert first.holds()
    keep.cancel()
    await asyncio.gather(keep, return_exceptions=True)


async def test_who_lost_the_lease_can_lead_again(server: Server) -> None:
    now = [100.0]
    first = Elector(cast(Any, server), "robustrl-system", "a", lambda: now[0])
    await first.lead()
    server.away = True
    keep = asyncio.create_task(first.keep())
    await asyncio.sleep(1.5 * lease.RETRY_SECONDS)
    assert not keep.done()
    now[0] += lease.RENEW_DEADLINE_SECONDS
    with pytest.raises(LeaseLost):
        await keep
    assert not first.holds()
    server.away = False
    await first.lead()
    assert first.holds()


async def test_who_finds_another_in_the_lease_stops_at_once(server: Server) -> None:
    """At its first look, long before its own deadline: which never comes here, as the clock stands."""
    first = Elector(cast(Any, server), "robustrl-system", "a", lambda: 100.0)
    await first.lead()
    assert server.lease
    assert server.lease.spec
    server.lease.spec.holderIdentity, server.lease.spec.renewTime = "b", None
    looks = server.looks
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(60):
            await first.keep()
    assert server.looks == looks + 1
    assert server.holder == "b"


async def test_who_gave_its_lease_back_does_not_take_it_again(server: Server) -> None:
    first = elector(server, "a")
    await first.lead()
    keep = asyncio.create_task(first.keep())
    await first.release()
    await asyncio.sleep(3 * lease.RETRY_SECONDS)
    assert server.holder == ""
    keep.cancel()
    await asyncio.gather(keep, return_exceptions=True)
