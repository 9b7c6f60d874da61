"""Which XIDs are new. The exporter's gauge keeps the last one until the exporter ends, so only a change is news. Pure.

- What the gauge shows when we first look at a GPU is old, however late the series of other GPUs come.
- From then on another number than the last is new, and so is a first one.
- A series that is absent says nothing: what comes after it is compared with what was before. So a gauge that outlives
  the exporter is not taken for a new error, and an error that took the exporter along is.

Two equal XIDs in a row look like one; nothing in the gauge tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class XidWatch:
    """The gauge of one GPU or MIG instance."""

    last: int = 0
    """What the gauge showed last; 0 for none."""
    looked: bool = False

    def take(self, shown: int | None) -> int:
        """The code that is new in this scrape, or 0.

        Args:
            shown: the gauge; None where the page has no such series.
        """
        before, looked = self.last, self.looked
        self.looked = True
        if shown is not None:
            self.last = shown
        return shown if shown and looked and shown != before else 0
