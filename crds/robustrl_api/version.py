"""The version of a job's weights: which trainer incarnation made them, after how many optimizer steps.

A version is durable and ordered. It is never a process's own counter: such counters start again after a
failover, and every staleness rule built on them goes silently wrong.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Version:
    """Weights after `step` optimizer steps, published by the trainers of `epoch`."""

    epoch: int
    step: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read the form `str()` writes, "EPOCH.STEP".

        Raises:
            ValueError: the text has another form.
        """
        epoch, dot, step = text.partition(".")
        if not (dot and epoch.isdecimal() and step.isdecimal()):
            raise ValueError(f"{text!r} is no weight version: expected EPOCH.STEP, such as 2.15")
        return cls(int(epoch), int(step))

    def __str__(self) -> str:
        return f"{self.epoch}.{self.step}"
