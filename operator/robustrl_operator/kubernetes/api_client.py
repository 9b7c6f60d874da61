"""lightkube's clients, for the API server's answers as they come.

lightkube takes a refusal for the API server's own by its Content-Type. A proxy or load balancer in between may send one
without, or call JSON what is none. Such an answer is no word of the API server's: like one of another type it is an
HTTP error, and whoever called tries again.
"""

from __future__ import annotations

import json

import httpx2
from lightkube import AsyncClient, Client

from robustrl_operator.kubernetes.resources import FIELD_MANAGER


def async_client() -> AsyncClient:
    """The operator's."""
    client = AsyncClient(field_manager=FIELD_MANAGER)
    # lightkube itself takes no hooks, and a transport of one's own would do without its TLS settings.
    client._client._client.event_hooks["response"].append(_give_a_type_async)
    return client


def sync_client() -> Client:
    """The command line's.

    Raises:
        lightkube.ConfigError: no cluster is configured.
    """
    client = Client()
    client._client._client.event_hooks["response"].append(_give_a_type)
    return client


def _give_a_type(response: httpx2.Response) -> None:
    if not response.is_success:
        response.read()
        response.headers["Content-Type"] = _type_of(response.content)


async def _give_a_type_async(response: httpx2.Response) -> None:
    if not response.is_success:
        await response.aread()
        response.headers["Content-Type"] = _type_of(response.content)


def _type_of(refusal: bytes) -> str:
    """The API server refuses with a Status and nothing else."""
    try:
        said = json.loads(refusal)
    except ValueError:
        return ""
    return "application/json" if isinstance(said, dict) and said.get("kind") == "Status" else ""
