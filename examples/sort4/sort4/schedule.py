"""The learning rate as a pure function of the step, so that a restored run goes on exactly as it would have."""

from __future__ import annotations

PEAK = 1.5e-3
_FLOOR = 0.02


def learning_rate(step: int, steps: int, peak: float = PEAK) -> float:
    """Constant over the first third, then linearly down to a fiftieth: what is nearly right settles."""
    return peak * min(1.0, max(_FLOOR, 1.5 * (1 - step / steps)))
