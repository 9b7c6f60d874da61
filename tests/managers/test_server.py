"""The HTTP surface: statuses, reasons, and bodies."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from robustrl.audit import record, report
from robustrl.managers import server
from robustrl.managers.server import Server


@pytest.fixture
async def http(start_job):
    job = await start_job()
    async with TestClient(TestServer(Server(job.managers).app())) as client:
        client.job = job
        yield client


async def call(http, method: str, path: str, **body):
    async with http.request(method, path, json=body) as response:
        return response.status, (await response.json() if response.status != 204 else None)


ADMITTED = {"admitted": True, "current": "1.0", "running": 0}
NOT_ADMITTED = {"admitted": False, "current": "0.0", "running": 0}
ENGINE = {"uid": "u", "url": "http://a", "version": "0.0", "state": "Serving"}


async def test_a_step_from_join_to_curve(http):
    http.job.fake("a")
    join = {"rank": 0, "world_size": 1, "pod": "t-0"}
    assert await call(http, "POST", "/v1/epochs/1/join", **join) == (200, {"restore": None, "step": 0})
    version = {"epoch": 1, "step": 0, "root": "r", "sources": ["x"]}
    assert await call(http, "PUT", "/v1/versions", **version) == (200, {"version": "1.0"})
    ENGINE_1 = {**ENGINE, "version": "1.0"}
    http.job.fake("a").version = "1.0"
    assert await call(http, "PUT", "/v1/engines/a", **ENGINE_1) == (
        200,
        {"admitted": True, "current": "1.0", "running": 0},
    )
    status, current = await call(http, "GET", "/v1/versions/current?after=0.9&wait_seconds=1")
    assert (status, current["publisher"], current["holders"]) == (
        200,
        {"sources": ["x"]},
        [],
    )
    status, batch = await call(http, "POST", "/v1/batches/0", epoch=1, rank=0, world_size=2, wait_seconds=5)
    assert status == 200
    assert len(batch["trajectories"]) == 3
    metrics = {"loss": 0.5, "kl": float("nan")}
    commit = {"epoch": 1, "batch": batch["batch"], "digests": {"0": "ab"}, "metrics": metrics}
    for _ in range(2):
        assert await call(http, "POST", "/v1/commits/0", **commit) == (200, {"step": 1})
    status, curve = await call(http, "GET", "/v1/curve")
    assert [(row["epoch"], row["step"], row["metrics"]) for row in curve] == [(1, 0, {"loss": 0.5, "kl": None})]
    status, progress = await call(http, "GET", "/v1/progress")
    assert (progress["step"], progress["epoch"], progress["metrics"]) == (1, 1, {"loss": 0.5, "kl": None})
    assert progress["reward_mean"] == curve[0]["reward_mean"]
    assert (await call(http, "GET", "/v1/audit"))[1]["ok"]
    async with http.get("/metrics") as response:
        text = await response.text()
    assert "robustrl_step 1\n" in text
    assert 'robustrl_engine_admitted{pod="a"} 1' in text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/epochs/1/join", {"rank": 0, "world_size": 1, "pod": "t"}),
        ("POST", "/v1/batches/0", {"epoch": 1, "rank": 0, "world_size": 1}),
        ("POST", "/v1/commits/0", {"epoch": 1, "batch": "b"}),
        ("PUT", "/v1/versions", {"epoch": 1, "step": 0, "root": "r"}),
        ("PUT", "/v1/roster", {"epoch": 1, "rollouts": []}),
    ],
)
async def test_an_epoch_that_is_over_is_fenced_everywhere(http, method, path, body):
    assert (await call(http, "PUT", "/v1/roster", epoch=2, rollouts=["a"]))[0] == 200
    status, answer = await call(http, method, path, **body)
    assert (status, answer["error"], answer["epoch"]) == (409, "Fenced", 2)


@pytest.mark.parametrize(
    ("method", "path", "body", "text"),
    [
        ("POST", "/v1/batches/0", {"epoch": 1, "rank": 2, "world_size": 2}, "rank 2 does not exist"),
        ("POST", "/v1/batches/0", {}, "epoch: Field required"),
        ("PUT", "/v1/engines/a", {**ENGINE, "version": "new"}, "version: "),
        ("PUT", "/v1/engines/a", {**ENGINE, "state": "Sleeping"}, "state: "),
        ("GET", "/v1/versions/current?after=x", {}, "after: "),
    ],
)
async def test_a_bad_message_is_told_why(http, method, path, body, text):
    status, answer = await call(http, method, path, **body)
    assert (status, answer["error"]) == (400, "BadRequest")
    assert text in answer["message"]


async def test_nothing_to_give_is_204(http):
    assert await call(http, "POST", "/v1/batches/0", epoch=0, rank=0, world_size=1, wait_seconds=0) == (204, None)
    assert await call(http, "GET", "/v1/versions/current?wait_seconds=0") == (204, None)


async def test_a_step_out_of_order_is_named(http):
    status, answer = await call(http, "POST", "/v1/batches/3", epoch=0, rank=0, world_size=1)
    assert (status, answer["error"], answer["step"]) == (409, "OutOfOrder", 0)


async def test_only_the_roster_is_admitted(http):
    await call(http, "PUT", "/v1/versions", epoch=0, step=0, root="r")
    await call(http, "PUT", "/v1/roster", epoch=0, rollouts=["b"])
    assert await call(http, "PUT", "/v1/engines/a", **ENGINE) == (
        200,
        {"admitted": False, "current": "0.0", "running": 0},
    )
    assert (await call(http, "PUT", "/v1/engines/b", **ENGINE))[1]["admitted"]
    await call(http, "DELETE", "/v1/engines/b")
    assert (await call(http, "GET", "/v1/progress"))[1]["engines"] == []


async def test_the_ledger_is_handed_out_whole_while_it_is_written(http, tmp_path):
    http.job.engine("a")
    await http.job.announce("0.0")
    await http.job.train(0, 0)
    async with http.get("/v1/ledger") as response:
        assert response.status == 200
        (tmp_path / "copy.sqlite").write_bytes(await response.read())
    found = record.read(tmp_path / "copy.sqlite")
    assert report.of(found).ok
    assert found.next_step == 1
    await http.job.until(lambda: not list(tmp_path.glob("snapshot-*")))


async def test_snapshots_that_killed_managers_left_are_removed(start_job, tmp_path):
    """The volume would fill up with them. Another ledger's may be on its way."""
    left = [tmp_path / f"snapshot-{name}-x1" for name in ("ledger.sqlite", "another.sqlite")]
    for folder in left:
        folder.mkdir()
        (folder / "ledger.sqlite").write_bytes(b"half of it")
    await start_job()
    assert [folder.exists() for folder in left] == [False, True]


async def test_a_caller_that_takes_nothing_of_the_ledger_is_given_up(http, tmp_path, monkeypatch):
    """Its machine lost its power: the copy for it would stay on the volume."""
    monkeypatch.setattr(server, "_STALLED_SECONDS", 0.05, raising=False)
    await http.job.managers.ledger.run(lambda db: db.execute("INSERT INTO meta VALUES ('x', zeroblob(64000000))"))
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=1)
    writer.write(b"GET /v1/ledger HTTP/1.1\r\nHost: managers\r\n\r\n")
    await http.job.until(lambda: list(tmp_path.glob("snapshot-*")))
    await http.job.until(lambda: not list(tmp_path.glob("snapshot-*")))
    writer.close()
    assert not reader.at_eof()
