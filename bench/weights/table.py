"""What was measured, each figure beside its limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """A figure (the median of its runs), its limit in the same run, and what is wanted of the ratio of the two."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    limit_is: str = ""
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    exact: bool | None = None
    note: str = ""
    runs: list[Any] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.exact is False:
            return False
        if self.ratio is None or (self.at_least is None and self.at_most is None):
            return None
        return (self.at_least is None or self.ratio >= self.at_least) and (
            self.at_most is None or self.ratio <= self.at_most
        )


HEADER = ("what", "measured", "limit", "ratio", "target", "")


def lines(rows: Iterable[Row]) -> list[str]:
    """A table in Markdown."""
    cells = [_cells(row) for row in rows]
    return ["| " + " | ".join(line) + " |" for line in [HEADER, ("---",) * len(HEADER), *cells]]


def _cells(row: Row) -> tuple[str, ...]:
    limit = "" if row.limit is None else f"{row.limit:.3g} {row.unit} ({row.limit_is})"
    wanted = [f"{sign} {bound:g}" for sign, bound in (("≥", row.at_least), ("≤", row.at_most)) if bound is not None]
    mark = {True: "met", False: "MISSED", None: ""}[row.met]
    return (
        row.what, f"{row.value:.3g} {row.unit}", limit, "" if row.ratio is None else f"{row.ratio:.2f}",
        " ".join(wanted), " ".join(word for word in (mark, row.note) if word),
    )  # fmt: skip
