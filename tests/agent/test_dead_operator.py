"""An agent whose operator's machine is dead. The machine is a network namespace of the test's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from robustrl.control_access import ControlAccess

HERE, THERE, PORT = "198.51.100.1", "198.51.100.2", 8443
CALLS = 3
FOUND_SECONDS = 5.0
"""Two are promised; the rest is for a busy machine."""
ANSWER_SECONDS = 60.0
_OPERATOR = f"""
import asyncio
from aiohttp import web
async def report(request):
    await asyncio.sleep(float((await request.text()) or 0))
    return web.Response(text="heard")
app = web.Application()
app.router.add_post("/v1/report", report)
web.run_app(app, host="{THERE}", port={PORT}, print=lambda *_: print("up", flush=True))
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a machine that can be cut off takes root")


def ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, timeout=20)


@pytest.fixture
def link() -> Iterator[str]:
    """The end here of a cable whose other end is in a namespace of the same name."""
    name = f"rt{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("-n", name, "addr", "add", f"{THERE}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("addr", "add", f"{HERE}/30", "dev", name)
        ip("link", "set", name, "up")
        yield name
        ip("link", "del", name)
    finally:
        ip("netns", "del", name)


@pytest.fixture
async def machine(link: str) -> AsyncIterator[str]:
    """A machine that answers a report after as many seconds as the report says."""
    process = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", link, sys.executable, "-c", _OPERATOR, stdout=subprocess.PIPE, cwd=Path.home()
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"up\n"
    yield link
    process.kill()
    await process.wait()


def cut(machine: str) -> None:
    """Nothing arrives there any more, and nobody says so."""
    ip("neigh", "replace", THERE, "lladdr", "02:00:00:00:00:99", "dev", machine, "nud", "permanent")


async def report(session: aiohttp.ClientSession, seconds: float = 0.0) -> str:
    async with session.post(f"http://{THERE}:{PORT}/v1/report", data=str(seconds)) as answer:
        return await answer.text()


async def test_every_connection_to_a_dead_machine_ends_at_once(machine: str) -> None:
    """Else each would be tried in turn, for as long as a call may take, and the agent be taken for silent meanwhile."""
    async with ControlAccess("").session() as session:
        held = [asyncio.create_task(report(session, ANSWER_SECONDS)) for _ in range(CALLS)]
        await asyncio.sleep(0.2)
        cut(machine)
        done, _ = await asyncio.wait(held, timeout=FOUND_SECONDS)
        assert len(done) == CALLS
        assert all(isinstance(call.exception(), aiohttp.ClientError) for call in done)


async def test_a_dead_machine_is_not_waited_for_when_connecting(machine: str) -> None:
    cut(machine)
    async with ControlAccess("").session() as session, asyncio.timeout(FOUND_SECONDS):
        with pytest.raises(aiohttp.ClientError):
            await report(session)


async def test_a_machine_that_lives_may_take_its_time(machine: str) -> None:
    async with ControlAccess("").session() as session:
        assert await report(session, FOUND_SECONDS) == "heard"
