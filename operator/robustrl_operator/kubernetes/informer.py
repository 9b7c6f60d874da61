"""A cache of one kind of object, kept by list and watch, with a label selector.

The watch is renewed every half minute by a fresh list, so that a watch that went silent hides nothing for longer;
`age_seconds` tells liveness when even the lists stop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from typing import Any

from lightkube import AsyncClient

from robustrl_api.errors import describe

log = logging.getLogger(__name__)

RENEW_SECONDS = 30.0
LIST_SECONDS = 10.0
MAX_RETRY_SECONDS = 10.0

Object = dict[str, Any]


class Informer:
    """Objects by UID.

    Args:
        on_change: called with each object that came, changed or went.
    """

    def __init__(
        self,
        client: AsyncClient,
        resource: Any,
        on_change: Callable[[Object], None],
        *,
        namespace: str | None = None,
        labels: dict[str, Any] | None = None,
    ) -> None:
        self._client, self._resource, self._on_change = client, resource, on_change
        self._scope: dict[str, Any] = {"labels": labels}
        if namespace is not None:
            self._scope["namespace"] = namespace
        self.objects: dict[str, Object] = {}
        self._taken: dict[str, Object] = {}
        self._last_contact = asyncio.get_running_loop().time()
        self._synced = asyncio.Event()
        self._watching: asyncio.Timeout | None = None

    @property
    def age_seconds(self) -> float:
        """Seconds since the API server was last heard."""
        return asyncio.get_running_loop().time() - self._last_contact

    async def run(self) -> None:
        """Follow until cancelled."""
        failures = 0
        while True:
            watched_since = math.inf
            try:
                version = await self._list()
                watched_since = self._last_contact
                if self._synced.is_set():
                    await self._watch(version)
                failures = 0
            except Exception as error:
                # A watch that is refused at once is no reason to begin again with lists in quick succession.
                worked = asyncio.get_running_loop().time() - watched_since > MAX_RETRY_SECONDS
                failures = 1 if worked else failures + 1
                delay = min(MAX_RETRY_SECONDS, 0.1 * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
                log.warning("%s: %s; again in %.1f s", self._resource.__name__, describe(error), delay)
                await asyncio.sleep(delay)

    async def renew(self) -> None:
        """Have everything read anew; returns once nothing that is known is older than this call."""
        synced = self._synced = asyncio.Event()
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())
        await synced.wait()

    async def _list(self) -> str:
        synced = self._synced
        self._taken = {}
        async with asyncio.timeout(LIST_SECONDS):
            listing = self._client.list(self._resource, **self._scope)
            found = {obj.metadata.uid: obj.to_dict() async for obj in listing}
            version = str(listing.resourceVersion)
        self._heard()
        before = self.objects
        # What we wrote while the list was on its way is not in it, and no less true.
        self.objects = found | {uid: obj for uid, obj in self._taken.items() if _is_news(obj, found.get(uid), version)}
        for uid in before.keys() | found.keys():
            if before.get(uid) != self.objects.get(uid):
                self._on_change(self.objects.get(uid) or before[uid])
        synced.set()
        return version

    async def _watch(self, version: str) -> None:
        """Follow changes until it is time for the next list."""
        try:
            async with asyncio.timeout(RENEW_SECONDS) as self._watching:
                async for change, item in self._client.watch(
                    self._resource, resource_version=version, server_timeout=int(RENEW_SECONDS), **self._scope
                ):
                    self._heard()
                    self.take(item.to_dict(), gone=change == "DELETED")
        except TimeoutError:
            return
        finally:
            self._watching = None

    def _heard(self) -> None:
        self._last_contact = asyncio.get_running_loop().time()

    def take(self, obj: Object, *, gone: bool = False) -> None:
        """Note a change that was seen, or made by us: what we wrote must be seen by the next plan."""
        uid = obj["metadata"]["uid"]
        if gone:
            self.objects.pop(uid, None)
        elif newer(obj, self.objects.get(uid)):
            self.objects[uid] = self._taken[uid] = obj
        else:
            return
        self._on_change(obj)


def _is_news(obj: Object, listed: Object | None, version: str) -> bool:
    """Whether an object was written after a list was made. The watch from that version on tells when it goes."""
    return _version(obj) > (_version(listed) if listed else _number(version))


def newer(obj: Object, than: Object | None) -> bool:
    """Whether an object is not older than the one that is known."""
    return than is None or _version(obj) >= _version(than)


def _version(obj: Object) -> int:
    return _number(obj["metadata"].get("resourceVersion"))


def _number(version: object) -> int:
    text = str(version or "0")
    return int(text) if text.isdecimal() else 0
