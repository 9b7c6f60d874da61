"""The label by which the Service finds the operator that leads: agents reach it and no other.

The leader takes the label off everybody else first. A dead machine's pod would keep it, and stay among the Service's
endpoints, until Kubernetes notices that the machine is gone. One that cannot be taken off keeps no leader from its own.
"""

from __future__ import annotations

from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

LABEL = "robustrl.dev/leader"
TRUE = "true"
NOT_FOUND = 404


async def stand_in_front(client: AsyncClient, namespace: str, me: str) -> None:
    """Move the label to this operator's pod.

    Raises:
        lightkube.ApiError, httpx2.HTTPError: it is not moved, or another pod has it still.
    """
    others = [
        pod.metadata.name
        async for pod in client.list(Pod, namespace=namespace, labels={LABEL: TRUE})
        if pod.metadata and pod.metadata.name and pod.metadata.name != me
    ]
    failed = [error for name in others if (error := await _take_off(client, namespace, name))]
    await _set(client, namespace, me, TRUE)
    if failed:
        raise failed[0]


async def _take_off(client: AsyncClient, namespace: str, pod: str) -> ApiError | None:
    """Why it could not be; a pod that is gone has none."""
    try:
        await _set(client, namespace, pod, None)
    except ApiError as error:
        return None if error.status.code == NOT_FOUND else error
    return None


async def _set(client: AsyncClient, namespace: str, pod: str, value: str | None) -> None:
    patch = {"metadata": {"labels": {LABEL: value}}}
    await client.patch(Pod, pod, patch, namespace=namespace, patch_type=PatchType.MERGE)
