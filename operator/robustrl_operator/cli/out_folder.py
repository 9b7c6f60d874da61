"""Where the files of a run on this machine go, the operator's own log among them."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path


def begin(out: Path | None, name: str) -> Path:
    """The folder, made if need be, with this process's log going there.

    Args:
        out: where the user wants it; left out, it is one below `out` that says what ran and when.
    """
    folder = (out or Path("out") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    logging.basicConfig(filename=folder / "operator.log", level=logging.INFO, format=form)
    return folder
