"""The moment at which a row of the fault matrix strikes, by what the managers say of the job (`/v1/progress`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robustrl_api.version import Version
from robustrl_operator.faults.matrix import Moment, Row

POLL_SECONDS = 0.005
"""Between two questions: these moments are short."""
Progress = dict[str, Any]


def is_told_by_managers(moment: Moment) -> bool:
    return moment in (Moment.PULL, Moment.RELAY, Moment.PUBLISH)


def whom(row: Row, said: Progress, playing: Sequence[str]) -> int | None:
    """Which of the pods that play the row's role is to be struck now; None while it is not the moment."""
    if row.moment is Moment.PUBLISH:
        return row.index if _is_unannounced(said) else None
    pulling = _pulling(said)
    meant = pulling if row.moment is Moment.PULL else _up_to_date(said) if pulling else []
    return next((playing.index(name) for name in reversed(meant) if name in playing), None)


def _pulling(said: Progress) -> list[str]:
    return [engine["pod"] for engine in said["engines"] if engine["state"] == "Pulling" and engine["version"]]


def _up_to_date(said: Progress) -> list[str]:
    return [engine["pod"] for engine in said["engines"] if engine["version"] == said["version"]]


def _is_unannounced(said: Progress) -> bool:
    return bool(said["version"]) and int(said["step"]) > Version.parse(said["version"]).step
