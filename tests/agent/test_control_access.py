"""Agents trust the CA that is in the file now: an operator that was installed anew has another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from robustrl.control_access import ControlAccess
from robustrl.supervisor.control_client import ControlClient
from robustrl.supervisor.state import PodState
from robustrl_api.control import Assignment
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig
from robustrl_operator.kubernetes import certificates


async def serve(made: certificates.Certificates, port: int, etag: str) -> web.AppRunner:
    async def assign(_request: web.Request) -> web.Response:
        return web.Response(text=Assignment(etag=etag, role=Role.ROLLOUT, heartbeat_seconds=0.1).model_dump_json())

    app = web.Application()
    app.router.add_post("/v1/report", assign)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=made.context()).start()
    return runner


async def test_an_operator_with_another_ca_is_heard_once_its_ca_is_handed_out(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    """The kubelet renews the file. Else every agent would be silent until its pod was replaced."""
    ca, heard, news = tmp_path / "ca.crt", [], asyncio.Event()
    config = PodConfig(
        job="j", namespace="ns", role=Role.ROLLOUT, control_url=f"https://localhost:{unused_tcp_port}", steps=1,
        memory_dir=str(tmp_path), ca_file=str(ca),
    )  # fmt: skip

    async def apply(assignment: Assignment) -> None:
        heard.append(assignment.etag)
        news.set()

    first, second = certificates.make("localhost"), certificates.make("localhost")
    ca.write_text(first.ca)
    client = asyncio.create_task(ControlClient(config, PodState("p", Role.ROLLOUT), apply).run())
    for made, etag in ((first, "first"), (second, "second")):
        runner = await serve(made, unused_tcp_port, etag)
        ca.write_text(made.ca)
        async with asyncio.timeout(20):
            await news.wait()
        news.clear()
        await runner.cleanup()
    assert heard == ["first", "second"]
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)


def test_the_same_ca_is_the_same_context(tmp_path: Path) -> None:
    """Calls over one connection need one."""
    ca = tmp_path / "ca.crt"
    access = ControlAccess("https://localhost", str(ca))
    ca.write_text(certificates.make("localhost").ca)
    first = access.tls()
    assert access.tls() is first
    ca.write_text(certificates.make("localhost").ca)
    assert access.tls() is not first
    assert ControlAccess("http://localhost").tls() is True
