"""The label by which the Service finds the operator that leads: agents reach it and no other.

The leader takes the label off everybody else first. A dead machine's pod would keep it, and stay among the Service's
endpoints, until Kubernetes notices that the machine is gone.
"""

from __future__ import annotations

import logging

from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

log = logging.getLogger(__name__)

LABEL = "robustrl.dev/leader"
TRUE = "true"


async def stand_in_front(client: AsyncClient, namespace: str, me: str) -> None:
    """Move the label to this operator's pod."""
    async for pod in client.list(Pod, namespace=namespace, labels={LABEL: TRUE}):
        name = pod.metadata.name if pod.metadata else None
        if name and name != me:
            await _set(client, namespace, name, None)
    await _set(client, namespace, me, TRUE)


async def _set(client: AsyncClient, namespace: str, pod: str, value: str | None) -> None:
    try:
        patch = {"metadata": {"labels": {LABEL: value}}}
        await client.patch(Pod, pod, patch, namespace=namespace, patch_type=PatchType.MERGE)
    except ApiError as error:
        log.warning("label %s of pod %s: %s", LABEL, pod, error.status.message)
