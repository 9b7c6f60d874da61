"""A copy of a ledger as it is at one moment, made while its writer goes on."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from robustrl.audit.record import opened


def take(source: Path, target: Path) -> None:
    """Write the whole of `source` to the new file `target`.

    Raises:
        BadLedger: the source cannot be read.
    """
    with opened(source) as db, contextlib.closing(sqlite3.connect(target)) as copy:
        db.backup(copy)
