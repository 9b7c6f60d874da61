"""A run over time: each pod's role, steps, rewards and tokens, and the moments when something happened."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PodSample:
    name: str
    role: str
    tokens_total: float = 0.0
    admitted: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a run at one moment; `seconds` counts from the first."""

    step: int
    epoch: int
    reward: float | None
    tokens_total: float | None
    recovering: bool
    pods: tuple[PodSample, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, such as a fault."""

    seconds: float
    text: str


@dataclass
class Timeline:
    """Samples and marks in the order they came."""

    samples: list[Sample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    _zero: float = field(default_factory=time.monotonic)

    def add(self, sample: Sample) -> None:
        fields = {name: getattr(sample, name) for name in Sample.__slots__ if name != "seconds"}
        self.samples.append(Sample(**fields, seconds=self._seconds()))

    def mark(self, text: str) -> None:
        self.marks.append(Mark(self._seconds(), text))

    def _seconds(self) -> float:
        return time.monotonic() - self._zero

    def tokens_per_second(self, pod: str, window_seconds: float = 2.0) -> float:
        """How fast a pod has been generating lately."""
        recent = [s for s in self.samples if s.seconds >= self._seconds() - window_seconds]
        totals = [(s.seconds, p.tokens_total) for s in recent for p in s.pods if p.name == pod]
        if len(totals) < 2 or totals[-1][0] <= totals[0][0]:
            return 0.0
        return max(0.0, (totals[-1][1] - totals[0][1]) / (totals[-1][0] - totals[0][0]))

    def write(self, path: Path) -> None:
        """Store everything as JSON."""
        samples, marks = [asdict(sample) for sample in self.samples], [asdict(mark) for mark in self.marks]
        path.write_text(json.dumps({"samples": samples, "marks": marks}))
