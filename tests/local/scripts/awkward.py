"""The example's training, healthy and awkward: in some steps it does what looks like a hang."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import train
from awkward_tasks import LONG, SHORT

from robustrl.sdk.job import TrainerJob

COMPILES, EVALUATES, SAVES_SLOWLY, SCORES = 0, 3, 5, 7


@contextlib.contextmanager
def phase(self: TrainerJob, name: str) -> Iterator[None]:
    """A phase of the script, with what is awkward about its step."""
    step = self._next_step
    if (name, step, self.rank) == ("Train", EVALUATES, 0):
        # The others are in their first collective meanwhile.
        with usual(self, "Evaluate"):
            time.sleep(LONG)
    with usual(self, name):
        if (name, step) == ("Train", COMPILES):
            time.sleep(SHORT)
            use_the_processor(LONG)
        if (name, step) == ("Train", SCORES):
            time.sleep(SHORT)
        if (name, step) == ("Checkpoint", SAVES_SLOWLY):
            time.sleep(LONG)
        yield


def use_the_processor(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


usual = TrainerJob.phase

if __name__ == "__main__":
    TrainerJob.phase = phase  # type: ignore[method-assign]
    train.main()
