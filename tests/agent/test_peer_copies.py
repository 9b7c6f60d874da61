"""Copies of checkpoints in the memory of another pod: over real sockets, verified, fenced, bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from tests.agent.test_checkpoint import always, damage, made

from robustrl.checkpoint import folder as folders
from robustrl.checkpoint.archive import Archive
from robustrl.checkpoint.fetch import Found, NoCopy, Wanted, nearest_first, obtain
from robustrl.checkpoint.keeping import Declined, Keeping
from robustrl.checkpoint.offer import Offer
from robustrl.checkpoint.pushing import Pusher
from robustrl.checkpoint.shelf import Shelf
from robustrl.supervisor.http import AgentEndpoint
from robustrl.supervisor.memory import SLOTS
from robustrl.supervisor.state import PodState
from robustrl_api.control import Peer
from robustrl_api.names import Role
from robustrl_api.version import Version

EPOCH = 3
ALL = range(8)


@dataclass
class Pod:
    """An agent's part in copies: memory, endpoint, offers out and offers in."""

    name: str
    memory: Shelf
    peer: Peer
    keeping: Keeping
    pusher: Pusher
    endpoint: AgentEndpoint
    copied: list[Version] = field(default_factory=list)

    def commit(self, step: int, *, rank: int = 0, content: bytes = b"") -> str:
        """A checkpoint that the ledger accepted; its root."""
        version = Version(EPOCH, step)
        root = made(self.memory, version, rank, content or b"state %d" % step)
        self.pusher.committed(version)
        return root


Start = Callable[[str], Awaitable[Pod]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    pods: list[Pod] = []
    async with contextlib.AsyncExitStack() as stack:

        async def begin(name: str) -> Pod:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            memory = Shelf(tmp_path / name, SLOTS)
            copied: list[Version] = []
            keeping, pusher = Keeping(memory), Pusher(memory, name, copied.append)
            endpoint = AgentEndpoint(PodState(name, Role.TRAINER), memory, keeping, "127.0.0.1", port, always)
            await endpoint.start()
            stack.push_async_callback(endpoint.close)
            task = asyncio.create_task(pusher.run())
            stack.callback(task.cancel)
            peer = Peer(pod=name, role=Role.TRAINER, address="127.0.0.1", agent_port=port)
            pods.append(Pod(name, memory, peer, keeping, pusher, endpoint, copied))
            for each in pods:
                each.keeping.assign(EPOCH, [other.peer for other in pods if other is not each])
            return pods[-1]

        yield begin


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.005)


async def test_each_committed_checkpoint_reaches_the_keepers_memory(start: Start) -> None:
    owner, keeper = await start("owner"), await start("keeper")
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    for step in range(1, 5):
        root = owner.commit(step)
        await until(lambda s=step: owner.pusher.copied == Version(EPOCH, s))
        folders.verify(keeper.memory.folder(Version(EPOCH, step), 0), frozenset({root}))
    assert owner.copied == [Version(EPOCH, step) for step in range(1, 5)]
    assert keeper.memory.versions() == [Version(EPOCH, 3), Version(EPOCH, 4)], "two and no more are kept"


async def test_what_a_dead_pod_had_is_restored_from_its_keeper(start: Start, tmp_path: Path) -> None:
    owner, keeper, heir = await start("owner"), await start("keeper"), Shelf(tmp_path / "heir", SLOTS)
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    root = owner.commit(7)
    await until(lambda: owner.copied)
    await owner.endpoint.close()
    found = await obtain(
        Wanted(Version(EPOCH, 7), frozenset({root}), 0), heir, None, [owner.peer, keeper.peer], "keeper"
    )
    assert (found.place, found.whose) == ("peer", "keeper")
    assert folders.verify(found.path, frozenset({root}))


async def test_a_keeper_that_takes_the_place_has_it_in_its_own_memory(start: Start) -> None:
    owner, keeper = await start("owner"), await start("keeper")
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    root = owner.commit(7)
    await until(lambda: owner.copied)
    found = await obtain(Wanted(Version(EPOCH, 7), frozenset({root}), 5), keeper.memory, None, [])
    assert found.place == "memory"


async def test_a_new_keeper_gets_the_newest_checkpoint_at_once(start: Start) -> None:
    owner, first, second = await start("owner"), await start("first"), await start("second")
    owner.pusher.assign(first.peer, EPOCH, ALL)
    owner.commit(7)
    await until(lambda: owner.copied)
    await first.endpoint.close()
    owner.pusher.assign(second.peer, EPOCH, ALL)
    await until(lambda: second.memory.versions())
    assert second.memory.versions() == [Version(EPOCH, 7)]


async def test_a_keeper_on_a_dead_machine_is_not_waited_for_once_there_is_another(start: Start) -> None:
    """It took the offer and answers nothing, and nobody closes its connections."""
    owner, second = await start("owner"), await start("second")
    asked = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.sleep(60)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    dead = second.peer.model_copy(update={"pod": "dead", "agent_port": server.sockets[0].getsockname()[1]})
    owner.pusher.assign(dead, EPOCH, ALL)
    owner.commit(7)
    await asked.wait()
    owner.pusher.assign(second.peer, EPOCH, ALL)
    await until(lambda: owner.copied)
    assert second.memory.versions() == [Version(EPOCH, 7)]
    server.close()


async def test_equal_parts_travel_once_and_different_ones_all(start: Start) -> None:
    owner, keeper = await start("owner"), await start("keeper")
    for rank, content in ((0, b"equal"), (1, b"equal"), (2, b"different")):
        made(owner.memory, Version(EPOCH, 7), rank, content)
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    owner.pusher.committed(Version(EPOCH, 7))
    await until(lambda: owner.copied)
    assert [path.name for path in keeper.memory.copies(Version(EPOCH, 7))] == ["rank-0", "rank-2"]


@pytest.mark.parametrize(
    ("ranks", "offered"),
    [
        pytest.param(range(2, 4), ["rank-2", "rank-3"], id="its own"),
        pytest.param(range(6, 8), ["rank-0", "rank-1", "rank-2", "rank-3"], id="what it restored from another's"),
    ],
)
async def test_nobody_passes_on_what_he_keeps_for_others(start: Start, ranks: range, offered: list[str]) -> None:
    owner, keeper = await start("owner"), await start("keeper")
    for rank in range(4):
        made(owner.memory, Version(EPOCH, 7), rank, b"shard %d" % rank)
    owner.pusher.assign(keeper.peer, EPOCH, ranks)
    owner.pusher.committed(Version(EPOCH, 7))
    await until(lambda: owner.copied)
    assert [path.name for path in keeper.memory.copies(Version(EPOCH, 7))] == offered


async def test_what_the_keeper_has_already_does_not_travel(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data-parallel neighbour made the same state itself."""
    owner, keeper = await start("owner"), await start("keeper")
    made(keeper.memory, Version(EPOCH, 7), 1, b"state 7")

    async def never(*_: object) -> None:
        raise AssertionError("nothing has to travel")

    monkeypatch.setattr(Keeping, "_fetch", never)
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    owner.commit(7)
    await until(lambda: owner.copied)


async def test_damaged_bytes_are_not_kept(start: Start) -> None:
    owner, keeper = await start("owner"), await start("keeper")
    root = made(owner.memory, Version(EPOCH, 7))
    damage(owner.memory, Version(EPOCH, 7))
    offer = Offer(pod="owner", epoch=EPOCH, version=f"{EPOCH}.7", parts={"rank-0": root})
    with pytest.raises(Declined, match="damaged"):
        await keeper.keeping.take(offer)
    assert keeper.memory.copies(Version(EPOCH, 7)) == []
    assert list((keeper.memory.root / f"{EPOCH}.7").iterdir()) == [], "nothing half-done is left in memory"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"epoch": EPOCH - 1}, "epoch 2 is over"),
        ({"pod": "stranger"}, "no pod of this job"),
        ({"parts": {"../rank-0": "00"}}, "no part of a checkpoint"),
        ({"version": f"{EPOCH}.9"}, "could not be fetched"),
        ({"parts": {"rank-0": "0" * 32}}, "another checkpoint"),
    ],
)
async def test_offers_that_are_declined(start: Start, changes: dict[str, object], why: str) -> None:
    owner, keeper = await start("owner"), await start("keeper")
    root = made(owner.memory, Version(EPOCH, 7))
    usual = {"pod": "owner", "epoch": EPOCH, "version": f"{EPOCH}.7", "parts": {"rank-0": root}}
    body = Offer.model_validate({**usual, **changes}).model_dump_json()
    url = f"http://127.0.0.1:{keeper.peer.agent_port}/copies"
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as response:
        assert response.status == 409
        assert why in await response.text()
    assert keeper.memory.copies(Version(EPOCH, 7)) == []


async def test_an_offer_that_makes_no_sense_is_a_bad_request(start: Start) -> None:
    keeper = await start("keeper")
    url = f"http://127.0.0.1:{keeper.peer.agent_port}/copies"
    for body in ("", "{", '{"pod": "owner", "epoch": 3, "version": "seven", "parts": {}}'):
        async with aiohttp.ClientSession() as session, session.post(url, data=body) as response:
            assert response.status == 400


async def test_a_copy_on_its_way_is_not_pruned_away(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are faster than the copy: the one that travels stays until it is there, the newest follows."""
    owner, keeper = await start("owner"), await start("keeper")
    reached, go_on = asyncio.Event(), asyncio.Event()
    fetch = Keeping._fetch

    async def slowly(*arguments: object) -> None:
        reached.set()
        await go_on.wait()
        await fetch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Keeping, "_fetch", slowly)
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    owner.commit(1)
    await reached.wait()
    for step in (2, 3, 4):
        owner.commit(step)
        owner.memory.prune(Version(EPOCH, step))
    assert owner.memory.versions() == [Version(EPOCH, step) for step in (1, 3, 4)]
    go_on.set()
    await until(lambda: len(owner.copied) == 2)
    assert owner.copied == [Version(EPOCH, 1), Version(EPOCH, 4)]
    owner.memory.prune(Version(EPOCH, 4))
    assert owner.memory.versions() == [Version(EPOCH, 3), Version(EPOCH, 4)]


async def test_a_keeper_that_is_away_for_a_moment_is_told_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustrl.checkpoint.pushing.RETRY_SECONDS", 0.01)
    owner, keeper = await start("owner"), await start("keeper")
    tries = 0
    take = keeper.keeping.take

    async def declines_once(offer: Offer) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Declined("not now")
        await take(offer)

    monkeypatch.setattr(keeper.keeping, "take", declines_once)
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    owner.commit(7)
    await until(lambda: owner.copied)
    assert tries == 2


async def test_a_keeper_that_is_gone_costs_a_few_tries_and_training_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("robustrl.checkpoint.pushing.RETRY_SECONDS", 0.01)
    owner, keeper = await start("owner"), await start("keeper")
    await keeper.endpoint.close()
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    owner.commit(7)
    await until(lambda: caplog.text.count("keeps no copy of checkpoint 3.7") == 3)
    await asyncio.sleep(0.1)
    assert caplog.text.count("keeps no copy") == 3, "and then it waits for the next checkpoint"
    assert owner.copied == []


async def test_settled_means_that_the_newest_is_there(start: Start) -> None:
    owner, keeper = await start("owner"), await start("keeper")
    assert not owner.pusher.has_target
    await owner.pusher.settled()
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    for step in (1, 2, 3):
        owner.commit(step)
    async with asyncio.timeout(10):
        await owner.pusher.settled()
    assert owner.pusher.has_target
    assert owner.copied[-1] == Version(EPOCH, 3)
    assert keeper.memory.copies(Version(EPOCH, 3))


async def test_storage_gets_its_copy_beside_the_peer(start: Start, tmp_path: Path) -> None:
    owner, keeper, storage = await start("owner"), await start("keeper"), Shelf(tmp_path / "storage", 3)
    archive = Archive(owner.memory, storage, [].append)
    task = asyncio.create_task(archive.run())
    owner.pusher.assign(keeper.peer, EPOCH, ALL)
    for step in (1, 2, 3):
        owner.commit(step)
        archive.committed(Version(EPOCH, step))
        await until(lambda s=step: storage.copies(Version(EPOCH, s)) and keeper.memory.copies(Version(EPOCH, s)))
    task.cancel()


# Which copy is taken.


def peer(pod: str, rank: int = -1) -> Peer:
    return Peer(pod=pod, role=Role.TRAINER if rank >= 0 else Role.ROLLOUT, address="10.0.0.1", rank=rank)


def test_peers_are_asked_in_the_order_in_which_they_likely_have_it() -> None:
    peers = [peer("r-1"), peer("r-2"), peer("t-0", 0), peer("r-3"), peer("t-1", 1)]
    order = [each.pod for each in nearest_first(peers, keeper="r-2")]
    assert set(order[:2]) == {"t-0", "t-1"}
    assert order[2] == "r-2"
    assert set(order[3:]) == {"r-1", "r-3"}


PLACES = ("own", "peer", "storage")


@pytest.mark.parametrize(
    ("good", "damaged", "place"),
    [
        ({"own", "peer", "storage"}, set(), "memory"),
        ({"peer", "storage"}, set(), "peer"),
        ({"storage"}, set(), "storage"),
        ({"peer", "storage"}, {"own"}, "peer"),
        ({"storage"}, {"own", "peer"}, "storage"),
        ({"peer"}, {"own", "storage"}, "peer"),
        (set(), {"own", "peer", "storage"}, None),
        (set(), set(), None),
    ],
)
async def test_the_nearest_good_copy_is_taken(
    start: Start, tmp_path: Path, good: set[str], damaged: set[str], place: str | None
) -> None:
    keeper = await start("keeper")
    shelves = {"own": Shelf(tmp_path / "own", 2), "peer": keeper.memory, "storage": Shelf(tmp_path / "storage", 2)}
    version, root = Version(EPOCH, 7), ""
    for name in good | damaged:
        root = made(shelves[name], version)
        if name in damaged:
            damage(shelves[name], version)
    wanted = Wanted(version, frozenset({root}), 0)
    if place is None:
        with pytest.raises(NoCopy):
            await obtain(wanted, shelves["own"], shelves["storage"], [keeper.peer], "keeper")
        return
    found = await obtain(wanted, shelves["own"], shelves["storage"], [keeper.peer], "keeper")
    assert isinstance(found, Found)
    assert found.place == place
    folders.verify(found.path, frozenset({root}))
