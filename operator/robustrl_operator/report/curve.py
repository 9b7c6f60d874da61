"""How well a model does at the end of its training, read from the metrics of its committed steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LAST_STEPS = 10
"""One step alone says it with too much noise."""


def mean_of_last(curve: Sequence[Mapping[str, Any]], metric: str) -> float:
    """Over the last steps; not a number where none has it.

    Args:
        curve: the committed steps, as `robustrl.audit` reports them.
    """
    values = [commit["metrics"][metric] for commit in curve[-LAST_STEPS:] if metric in commit["metrics"]]
    return sum(values) / len(values) if values else float("nan")
