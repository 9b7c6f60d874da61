"""An answer that is not the API server's own is an HTTP error like any other, and ends no operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from lightkube import ApiError
from lightkube.resources.coordination_v1 import Lease
from tests.operator.kubernetes.fake_api import FakeApi

from robustrl_operator.kubernetes.api_client import async_client, sync_client
from robustrl_operator.kubernetes.lease import NAME, RETRY_SECONDS, Elector


class Proxy:
    """In front of an API server that it does not reach: answers without a Content-Type, or what is said."""

    def __init__(self) -> None:
        self.calls = 0
        self.headers, self.body = "", b""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.calls += 1
        length = f"Content-Length: {len(self.body)}\r\nConnection: close\r\n"
        writer.write(f"HTTP/1.1 502 Bad Gateway\r\n{self.headers}{length}\r\n".encode() + self.body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    proxy, config = Proxy(), FakeApi()
    server = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
    config.port = server.sockets[0].getsockname()[1]
    (tmp_path / "kubeconfig").write_text(config.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield proxy
    server.close()


async def test_an_operator_goes_on_trying_to_lead(proxy: Proxy) -> None:
    elector = Elector(async_client(), "sys", "me")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(elector.lead(), 3 * RETRY_SECONDS)
    assert proxy.calls > 1


@pytest.mark.usefixtures("proxy")
async def test_the_command_line_hears_of_an_http_error() -> None:
    with pytest.raises(httpx2.HTTPStatusError, match="502 Bad Gateway"):
        await asyncio.to_thread(sync_client().get, Lease, NAME, namespace="sys")


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Gateway</html>", b"\xff", b'["Bad Gateway"]', b"null", b'{"error": 1}']
)
async def test_what_is_called_json_and_is_no_word_of_the_api_servers_is_an_http_error(
    proxy: Proxy, body: bytes
) -> None:
    proxy.headers, proxy.body = "Content-Type: application/json\r\n", body
    with pytest.raises(httpx2.HTTPStatusError, match="502 Bad Gateway"):
        await async_client().get(Lease, NAME, namespace="sys")
    with pytest.raises(httpx2.HTTPStatusError, match="502 Bad Gateway"):
        await asyncio.to_thread(sync_client().get, Lease, NAME, namespace="sys")


async def test_a_refusal_of_the_api_servers_own_keeps_its_reason(proxy: Proxy) -> None:
    proxy.headers = "Content-Type: application/json\r\n"
    proxy.body = b'{"kind": "Status", "code": 502, "message": "try again"}'
    with pytest.raises(ApiError, match="try again") as caught:
        await async_client().get(Lease, NAME, namespace="sys")
    assert caught.value.status.code == 502
