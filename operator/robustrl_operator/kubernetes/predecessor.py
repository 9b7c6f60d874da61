"""Where the operator was that led before and fell silent: it may be the first that is missed of all on its machine."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Pod

from robustrl_api.errors import describe
from robustrl_operator.kubernetes.lease import Predecessor

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""To know it is worth no longer delay."""


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node, and since when the operator on it has not been heard."""

    name: str
    since: datetime


async def find(client: AsyncClient, namespace: str, before: Predecessor | None, now: datetime) -> SilentNode | None:
    """None where nobody fell silent, and where it cannot be told: no more is lost by that than time.

    Args:
        namespace: the operators'.
        before: who let the lease run out; its name is that of its pod.
    """
    if before is None:
        return None
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            pod = await client.get(Pod, before.holder, namespace=namespace)
    except (ApiError, httpx2.HTTPError, TimeoutError) as error:
        log.warning("it is not known where %s was that led before: %s", before.holder, describe(error))
        return None
    node = pod.spec.nodeName if pod.spec else None
    return SilentNode(node, now - timedelta(seconds=before.silent_seconds)) if node else None
