"""Weight versions: which are announced, which is current, and telling those who wait for a newer one.

Invariants: the current version never goes backwards; a version whose step the ledger has not committed does
not exist (step 0, the initial weights, needs no commit).
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robustrl.managers import batches, fence
from robustrl.managers.holders import Holders
from robustrl.managers.ledger import Ledger
from robustrl.managers.pulse import Pulse, within
from robustrl.managers.refusal import Refused
from robustrl_api.version import Version


@dataclass(frozen=True)
class Announcement:
    """Published weights: their version, the root of their manifest, and how to reach the publisher
    (opaque)."""

    version: Version
    root: str
    publisher: Any


def announce(db: sqlite3.Connection, announcement: Announcement) -> None:
    """Record a version, or refuse it. Announcing the current one again renews its publisher."""
    version = announcement.version
    fence.admit(db, version.epoch)
    committed = batches.next_step(db)
    if version.step > committed:
        raise Refused("NotCommitted", f"step {version.step} is not committed; the newest is {committed}")
    if version.step < committed:
        raise Refused("Superseded", f"step {version.step} is over: step {committed} is committed", step=committed)
    newest = newest_announcement(db)
    if newest is not None and version < newest.version:
        raise Refused("Superseded", f"version {version} is older than the current {newest.version}")
    db.execute(
        "INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?)",
        (version.epoch, version.step, announcement.root, json.dumps(announcement.publisher)),
    )


def newest_announcement(db: sqlite3.Connection) -> Announcement | None:
    row = db.execute(
        "SELECT epoch, step, root, publisher FROM versions ORDER BY epoch DESC, step DESC LIMIT 1"
    ).fetchone()
    return Announcement(Version(row[0], row[1]), row[2], json.loads(row[3])) if row else None


def known(db: sqlite3.Connection) -> set[str]:
    return {f"{epoch}.{step}" for epoch, step in db.execute("SELECT epoch, step FROM versions")}


class Versions:
    """The versions as the event loop sees them.

    Args:
        on_change: called with each new current version.
    """

    def __init__(
        self,
        ledger: Ledger,
        on_change: Callable[[Version], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._on_change = on_change
        self._clock = clock
        self._pulse = Pulse()
        self.holders = Holders(clock)
        self._known: set[str] = set()
        self.current: Announcement | None = None

    async def load(self) -> None:
        """Take over what the ledger has."""
        self._known = await self._ledger.run(known)
        if newest := await self._ledger.run(newest_announcement):
            self._adopt(newest)

    def is_known(self, version: str) -> bool:
        """Whether these weights were ever announced; anything else must not have drawn a token."""
        return version in self._known

    async def announce(self, announcement: Announcement) -> None:
        await self._ledger.run(lambda db: announce(db, announcement), durable=True)
        self._adopt(announcement)

    async def newer_than(self, after: Version | None, wait_seconds: float) -> Announcement | None:
        """The current version once it is newer than ``after``; None if that takes longer."""
        deadline = self._clock() + wait_seconds
        while True:
            changed = self._pulse.next()
            if self.current is not None and (after is None or self.current.version > after):
                return self.current
            if not await within(changed, deadline - self._clock()):
                return None

    def _adopt(self, announcement: Announcement) -> None:
        if self.current is not None and announcement.version < self.current.version:
            return  # overtaken on its way from the ledger's thread
        self._known.add(str(announcement.version))
        self.current = announcement
        self._on_change(announcement.version)
        self._pulse.fire()
