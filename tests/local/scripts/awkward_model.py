"""The engine's model in the awkward job: every so many new weights take long to come into it."""

from __future__ import annotations

import time
from typing import Any

from awkward_tasks import LONG
from sort4 import model
from torch import Tensor

SLOW_EVERY = 4


class SlowToLoad(model.CharTransformer):
    loads = 0

    def state_dict(self, *arguments: Any, **named: Any) -> dict[str, Tensor]:
        """What weights are loaded into; meanwhile the engine's scheduler does nothing else."""
        self.loads += 1
        if self.loads % SLOW_EVERY == 0:
            time.sleep(LONG)
        return dict(super().state_dict(*arguments, **named))


def build_model() -> SlowToLoad:
    slow = SlowToLoad()
    slow.load_state_dict(model.build_model().state_dict())
    slow.loads = 0
    return slow
