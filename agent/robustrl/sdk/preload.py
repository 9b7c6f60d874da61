"""Imported by the warm worker: whatever a training process will import sooner or later."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    import robustrl.sdk.checkpointing
    import robustrl.sdk.job
    import robustrl.sdk.trainer  # noqa: F401
